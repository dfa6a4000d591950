// GET /health: the process answers. Says nothing about the model; that is /ready.
#include "api/api.h"

namespace tenon::api {
namespace {

void handle(const Context&, HttpRequest, std::shared_ptr<Response> response) {
  response->send(200, {{"content-type", "application/json"}}, R"({"status":"ok"})");
}

}  // namespace

std::vector<Endpoint> health_endpoints() { return {{"GET", "/health", true, handle}}; }

}  // namespace tenon::api
