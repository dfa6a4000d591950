// The reading half of a connection: header, what can be judged from it, body, and refusals.
#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>

#include "server/incoming.h"

namespace tenon::server {

namespace http = boost::beast::http;
using boost::system::error_code;

namespace {
constexpr uint32_t kHeaderBytesMax = 16 << 10;
constexpr int kDrainSeconds = 5;
constexpr size_t kDrainBytesMax = 256 << 20;

// The bytes are at fault, not the connection.
bool is_malformed(error_code ec) {
  return ec != http::error::end_of_stream && ec != http::error::partial_message &&
         ec.category() == make_error_code(http::error::bad_method).category();
}
}  // namespace

// Between requests. A connection that says nothing is closed without a word.
net::awaitable<bool> Connection::wait_bytes() {
  if (buffer_.size() > 0) co_return true;
  idle_ = true;
  error_code ec;
  arm(shared_.options.idle_timeout_s);
  co_await socket_.async_wait(Socket::wait_read, net::redirect_error(net::use_awaitable, ec));
  disarm();
  idle_ = false;
  co_return !ec && !left_;
}

net::awaitable<bool> Connection::read_header(Incoming& in) {
  in.parser.header_limit(kHeaderBytesMax);
  in.parser.body_limit(boost::none);  // judged below, where both numbers are at hand
  error_code ec;
  arm(shared_.options.idle_timeout_s);
  co_await http::async_read_header(socket_, buffer_, in.parser,
                                   net::redirect_error(net::use_awaitable, ec));
  disarm();
  if (!ec) co_return true;
  if (timed_out_) {
    co_await refuse(in, 408, "The request header did not arrive in time.", "request_timeout");
  } else if (ec == http::error::header_limit) {
    std::string message =
        fmt::format("The request header is over the limit of {} bytes.", kHeaderBytesMax);
    co_await refuse(in, 431, std::move(message), "header_too_large");
  } else if (is_malformed(ec)) {
    std::string message = fmt::format("The request is not valid HTTP: {}.", ec.message());
    co_await refuse(in, 400, std::move(message), "malformed_http");
  }
  co_return false;
}

namespace {

using Fields = http::fields;

std::vector<std::string> all_values(const Fields& fields, boost::beast::string_view name) {
  std::vector<std::string> values;
  const auto range = fields.equal_range(name);
  for (auto it = range.first; it != range.second; ++it) values.emplace_back(it->value());
  return values;
}

void copy_headers(const Fields& fields, api::HttpRequest* request) {
  for (const auto& field : fields) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string& value = request->headers[name];
    if (!value.empty()) value += ", ";
    value += field.value();
  }
}

bool says_continue(std::string value) {
  for (char& c : value) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return value == "100-continue";
}

}  // namespace

// Everything that can be judged before the body is read.
net::awaitable<bool> Connection::check_header(Incoming& in) {
  const auto& message = in.parser.get();
  copy_headers(message, &in.request);
  in.request.method = std::string(message.method_string());
  const auto length = in.parser.content_length();
  const uint64_t max = shared_.options.body_bytes_max;
  if (length && *length > max) {
    std::string too_big = fmt::format("The body has {} bytes, the limit is {}.", *length, max);
    co_await refuse(in, 413, std::move(too_big), "body_too_large");
    co_return false;
  }
  if (message.find(http::field::transfer_encoding) != message.end() && !in.parser.chunked()) {
    co_await refuse(in, 400, "The only transfer encoding taken is chunked.", "malformed_http");
    co_return false;
  }
  const auto expect = all_values(message, "expect");
  in.expects_continue = expect.size() == 1 && says_continue(expect[0]);
  if (!expect.empty() && !in.expects_continue) {
    co_await refuse(in, 417, "The only expectation met is 100-continue.", "expectation_failed");
    co_return false;
  }
  if (in.request.method == "OPTIONS")
    co_return true;  // a preflight carries no key and names no model
  auto target = parse_target(std::string_view(message.target().data(), message.target().size()));
  if (!target.ok()) {
    co_await refuse(in, 400, target.error().message, "malformed_path");
    co_return false;
  }
  in.request.path = std::move(target->path);
  in.request.query = std::move(target->query);
  in.head = in.request.method == "HEAD";
  in.endpoint = api::find_route(in.request.method, in.request.path).endpoint;
  const bool open = shared_.keys.empty() || (in.endpoint && in.endpoint->open);
  if (!open &&
      !shared_.keys.check(all_values(message, "authorization"), all_values(message, "x-api-key"))) {
    co_await refuse(in, 401,
                    "The API key is missing or wrong; send Authorization: Bearer KEY or x-api-key.",
                    "invalid_api_key");
    co_return false;
  }
  co_return true;
}

net::awaitable<bool> Connection::read_body(Incoming& in) {
  if (in.expects_continue && !in.parser.is_done()) {
    const bool written = co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return false;
  }
  const uint64_t max = shared_.options.body_bytes_max;
  in.parser.body_limit(max);
  // Each read has its own limit and the whole has one, so a body that trickles ends too.
  const auto over =
      std::chrono::steady_clock::now() + std::chrono::seconds(shared_.options.body_timeout_s);
  while (!in.parser.is_done()) {
    error_code ec;
    const auto left =
        std::chrono::ceil<std::chrono::seconds>(over - std::chrono::steady_clock::now());
    arm(std::clamp(static_cast<int>(left.count()), 0, shared_.options.idle_timeout_s));
    co_await http::async_read_some(socket_, buffer_, in.parser,
                                   net::redirect_error(net::use_awaitable, ec));
    disarm();
    const bool fits = in.lease(in.parser.get().body().size());
    if (!ec && fits) continue;
    if (!fits) {
      co_await refuse(in, 503, "The server holds too many request bodies; try again.",
                      "overloaded");
      co_return false;
    }
    if (timed_out_) {
      co_await refuse(in, 408, "The request body did not arrive in time.", "request_timeout");
    } else if (ec == http::error::body_limit) {
      const uint64_t seen = in.parser.get().body().size() + buffer_.size();
      std::string message = fmt::format("The body has more than {} bytes, the limit is {}.",
                                        std::max(seen, max), max);
      co_await refuse(in, 413, std::move(message), "body_too_large");
    } else if (is_malformed(ec)) {
      std::string message = fmt::format("The body is not valid HTTP: {}.", ec.message());
      co_await refuse(in, 400, std::move(message), "malformed_http");
    }
    co_return false;
  }
  co_return true;
}

net::awaitable<bool> Connection::answer_options(Incoming& in) {
  const bool body = !in.parser.is_done();  // not wanted, not read
  const bool keep_alive = in.parser.keep_alive() && !body && !shared_.stopping;
  std::string requested, out;
  in.request.header("access-control-request-headers", &requested);
  auto headers = preflight_headers(shared_.options.cors_origin, requested);
  headers.emplace_back("allow", "GET, POST, OPTIONS");
  out = head(204, headers, "", keep_alive);
  const bool written = co_await write_all(std::move(out));
  if (written && body) co_await drain();
  co_return written&& keep_alive;
}

// Answers and closes.
net::awaitable<void> Connection::refuse(Incoming& in, int status, std::string message,
                                        const char* code) {
  const std::string body = api::http_error_body(status, message, code);
  api::Response::Headers headers = cors_headers(shared_.options.cors_origin);
  headers.emplace_back("content-type", "application/json");
  if (status == 401) headers.emplace_back("www-authenticate", "Bearer");
  std::string out =
      head(status, headers, fmt::format("content-length: {}\r\n", body.size()), false);
  if (!in.head) out += body;
  const bool written = co_await write_all(std::move(out));
  if (written) co_await drain();
}

// Takes in what is still being sent, for a while: closing with unread bytes sends a reset, which
// may overtake the answer.
net::awaitable<void> Connection::drain() {
  error_code ec;
  socket_.shutdown(Socket::shutdown_send, ec);
  std::string scratch(64 << 10, '\0');
  size_t total = 0;
  arm(kDrainSeconds);
  while (!ec && total < kDrainBytesMax) {
    const size_t got = co_await socket_.async_read_some(
        net::buffer(scratch), net::redirect_error(net::use_awaitable, ec));
    total += got;
  }
  disarm();
}

}  // namespace tenon::server
