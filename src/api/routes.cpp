// The list of endpoints, finding one by path, and the guard around handlers.
#include <algorithm>

#include "api/api.h"
#include "base/log.h"

namespace tenon::api {

// Each endpoints/<name>.cpp defines its routes.
#define ENTRY(name) std::vector<Endpoint> name##_endpoints();
#include "api/endpoints.def"
#undef ENTRY

const std::vector<Endpoint>& endpoints() {
  static const std::vector<Endpoint> all = [] {
    std::vector<Endpoint> list;
#define ENTRY(name) \
  for (const Endpoint& endpoint : name##_endpoints()) list.push_back(endpoint);
#include "api/endpoints.def"
#undef ENTRY
    return list;
  }();
  return all;
}

namespace {

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

// A page of another site may send a body without a preflight only if it names no JSON type, so an
// absent type is taken from everyone except browsers.
bool json_body(const HttpRequest& request) {
  std::string type, origin;
  if (!request.header("content-type", &type)) return !request.header("origin", &origin);
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type == "application/json";
}

}  // namespace

Route find_route(std::string_view method, std::string_view path) {
  if (method == "HEAD") method = "GET";
  Route route;
  for (const Endpoint& endpoint : endpoints()) {
    if (!matches(endpoint.path, path)) continue;
    if (endpoint.method == method) route.endpoint = &endpoint;
    if (!route.allow.empty()) route.allow += ", ";
    route.allow += endpoint.method;
  }
  return route;
}

void dispatch(const Context& context, HttpRequest request, std::shared_ptr<Response> response) {
  try {
    const Route route = find_route(request.method, request.path);
    if (!route.endpoint && route.allow.empty())
      return send_http_error(*response, 404,
                             "There is no route " + request.path.substr(0, 200) +
                                 "; see the README for those there are.",
                             "route_not_found");
    if (!route.endpoint)
      return send_http_error(*response, 405, request.path + " answers " + route.allow + " only.",
                             "method_not_allowed", {{"allow", route.allow}});
    if (request.method == "POST" && !json_body(request))
      return send_http_error(*response, 415,
                             "The body must be sent as content-type: application/json.",
                             "unsupported_media_type");
    route.endpoint->handle(context, std::move(request), response);
  } catch (const std::exception& e) {
    send_error(*response, internal("{}", e.what()));
  } catch (...) {
    send_error(*response, internal("unknown exception"));
  }
}

}  // namespace tenon::api
