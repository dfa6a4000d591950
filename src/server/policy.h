// Who may call, from which origin, and what a request target names. No sockets, no HTTP library.
// Keys: compared as SHA-256 digests, all of them, without an early exit, so time does not tell a
// prefix. CORS: the configured origin or "*", never with credentials.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "api/api.h"
#include "server/server.h"

namespace tenon::server {

class KeyRing {
 public:
  explicit KeyRing(const std::vector<ApiKey>& keys);
  bool empty() const { return entries_.empty(); }
  // `authorization` and `api_key`: values of every Authorization and x-api-key header. Exactly one
  // of each at most, and every one presented must be good. The name of the key, nothing when
  // refused.
  const std::string* check(const std::vector<std::string>& authorization,
                           const std::vector<std::string>& api_key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Entry {
    std::string name;
    Digest digest;
  };
  static Digest digest(std::string_view secret);
  const std::string* find(std::string_view secret) const;

  std::vector<Entry> entries_;
};

// Headers for every answer when CORS is on; `requested` is Access-Control-Request-Headers of a
// preflight.
api::Response::Headers cors_headers(const std::string& origin);
api::Response::Headers preflight_headers(const std::string& origin, std::string_view requested);

struct Target {
  std::string path;  // percent-decoded
  std::string query;  // as sent
};
// "/a%20b?x=1" or "http://host/a". Errors: invalid (bad escape, NUL or other control byte, no
// path).
Result<Target> parse_target(std::string_view target);

}  // namespace tenon::server
