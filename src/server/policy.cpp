#include "server/policy.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>

#include "base/check.h"

namespace tenon::server {

KeyRing::KeyRing(const std::vector<ApiKey>& keys) {
  for (const ApiKey& key : keys) entries_.push_back({key.name, digest(key.secret)});
}

KeyRing::Digest KeyRing::digest(std::string_view secret) {
  Digest out{};
  const int good =
      EVP_Digest(secret.data(), secret.size(), out.data(), nullptr, EVP_sha256(), nullptr);
  CHECK(good == 1, "SHA-256 is not available");
  return out;
}

const std::string* KeyRing::find(std::string_view secret) const {
  const Digest presented = digest(secret);
  const std::string* found = nullptr;
  for (const Entry& entry : entries_)
    if (CRYPTO_memcmp(entry.digest.data(), presented.data(), presented.size()) == 0)
      found = &entry.name;
  return found;
}

const std::string* KeyRing::check(const std::vector<std::string>& authorization,
                                  const std::vector<std::string>& api_key) const {
  if (authorization.size() > 1 || api_key.size() > 1 || authorization.size() + api_key.size() == 0)
    return nullptr;
  const std::string* name = nullptr;
  if (!authorization.empty()) {
    const std::string& value = authorization[0];
    constexpr std::string_view kScheme = "bearer ";
    const bool bearer =
        value.size() > kScheme.size() &&
        std::equal(kScheme.begin(), kScheme.end(), value.begin(),
                   [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
    if (!bearer) return nullptr;
    name = find(std::string_view(value).substr(kScheme.size()));
    if (!name) return nullptr;
  }
  return api_key.empty() ? name : find(api_key[0]);
}

api::Response::Headers cors_headers(const std::string& origin) {
  if (origin.empty()) return {};
  api::Response::Headers headers{
      {"access-control-allow-origin", origin},
      {"access-control-expose-headers", "retry-after, x-tenon-ignored-fields"}};
  if (origin != "*") headers.emplace_back("vary", "origin");
  return headers;
}

api::Response::Headers preflight_headers(const std::string& origin, std::string_view requested) {
  api::Response::Headers headers = cors_headers(origin);
  if (headers.empty()) return headers;
  // Client libraries add headers of their own (x-stainless-*), so what was asked for is granted
  // too.
  std::string allowed = "authorization, content-type, x-api-key";
  const bool plain = std::all_of(requested.begin(), requested.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == ',' || c == ' ';
  });
  if (plain && !requested.empty()) allowed += ", " + std::string(requested);
  headers.emplace_back("access-control-allow-methods", "GET, POST, OPTIONS");
  headers.emplace_back("access-control-allow-headers", std::move(allowed));
  headers.emplace_back("access-control-max-age", "600");
  return headers;
}

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<Target> parse_target(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (target.starts_with(scheme)) {
      const size_t slash = target.find('/', scheme.size());
      target = slash == std::string_view::npos ? "/" : target.substr(slash);
    }
  if (!target.starts_with('/'))
    return invalid("the request target must be a path that begins with /");
  Target out;
  target = target.substr(0, target.find('#'));
  if (const size_t mark = target.find('?'); mark != std::string_view::npos) {
    out.query = target.substr(mark + 1);
    target = target.substr(0, mark);
  }
  for (size_t i = 0; i < target.size(); ++i) {
    char c = target[i];
    if (c == '%') {
      const int high = i + 2 < target.size() ? hex_digit(target[i + 1]) : -1;
      const int low = i + 2 < target.size() ? hex_digit(target[i + 2]) : -1;
      if (high < 0 || low < 0) return invalid("the request path has a bad percent escape");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      return invalid("the request path has a control character");
    out.path += c;
  }
  return out;
}

}  // namespace tenon::server
