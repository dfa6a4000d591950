// The error table and OpenAI's error object.
#include "api/api.h"
#include "base/log.h"

namespace tenon::api {

bool HttpRequest::header(std::string_view name, std::string* value) const {
  const auto it = headers.find(std::string(name));
  if (it == headers.end()) return false;
  *value = it->second;
  return true;
}

WireError wire_error(Code code) {
  switch (code) {
    case Code::invalid: return {400, "invalid_request_error", "invalid_request"};
    case Code::not_found: return {404, "invalid_request_error", "not_found"};
    case Code::unsupported: return {400, "invalid_request_error", "unsupported"};
    case Code::too_large: return {413, "invalid_request_error", "too_large"};
    case Code::overloaded: return {429, "rate_limit_error", "overloaded"};
    case Code::cancelled: return {499, "cancelled_error", "cancelled"};
    case Code::deadline: return {408, "timeout_error", "deadline_exceeded"};
    case Code::corrupt: return {500, "server_error", "corrupt_model"};
    case Code::unavailable: return {503, "unavailable_error", "unavailable"};
    case Code::internal: return {500, "server_error", "internal_error"};
  }
  return {500, "server_error", "internal_error"};
}

namespace {

std::string error_object(std::string_view message, std::string_view type, std::string_view param,
                         std::string_view code) {
  Json inner;
  inner["message"] = std::string(message);
  inner["type"] = std::string(type);
  inner["param"] = param.empty() ? Json() : Json(std::string(param));
  inner["code"] = code.empty() ? Json() : Json(std::string(code));
  Json outer;
  outer["error"] = std::move(inner);
  return dump_json(outer);
}

}  // namespace

std::string error_body(const Error& error) {
  const WireError wire = wire_error(error.code);
  const std::string_view code = error.reason.empty() ? std::string_view(wire.code) : error.reason;
  if (error.code == Code::internal || error.code == Code::corrupt) {
    log_warn("request failed: {}: {}", code_name(error.code), error.message);
    return error_object("The server had an error while processing the request; its log says more.",
                        wire.type, error.field, code);
  }
  return error_object(error.message, wire.type, error.field, code);
}

void send_error(Response& response, const Error& error) {
  const WireError wire = wire_error(error.code);
  Response::Headers headers{{"content-type", "application/json"}};
  if (error.code == Code::overloaded) headers.emplace_back("retry-after", "1");
  if (error.code == Code::unavailable) headers.emplace_back("retry-after", "5");
  response.send(wire.status, std::move(headers), error_body(error));
}

std::string http_error_body(int status, std::string_view message, std::string_view code) {
  const char* type = status >= 500   ? "server_error"
                     : status == 408 ? "timeout_error"
                                     : "invalid_request_error";
  return error_object(message, type, {}, code);
}

void send_http_error(Response& response, int status, std::string_view message,
                     std::string_view code, Response::Headers headers) {
  headers.emplace_back("content-type", "application/json");
  response.send(status, std::move(headers), http_error_body(status, message, code));
}

}  // namespace tenon::api
