// GET /ready: 200 when requests would be served, else 503.
#include "api/api.h"

namespace tenon::api {
namespace {

void handle(const Context& context, HttpRequest, std::shared_ptr<Response> response) {
  if (!context.engine->stats().ready)
    return send_error(*response, unavailable("The server is loading, warming up or stopping."));
  response->send(200, {{"content-type", "application/json"}}, R"({"status":"ready"})");
}

}  // namespace

std::vector<Endpoint> ready_endpoints() { return {{"GET", "/ready", true, handle}}; }

}  // namespace tenon::api
