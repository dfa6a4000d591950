// GET /v1/models and GET /v1/models/{id}; an id may hold slashes.
#include "api/api.h"
#include "api/body.h"

namespace tenon::api {
namespace {

Json describe(const engine::Model& model) {
  Json out;
  out["id"] = model.name;
  out["object"] = "model";
  out["created"] = model.created;
  out["owned_by"] = "tenon";
  out["max_model_len"] = model.context_len;
  return out;
}

void list(const Context& context, HttpRequest, std::shared_ptr<Response> response) {
  Json data = Json::array();
  for (const auto& model : context.engine->models()) data.push_back(describe(*model));
  Json out;
  out["object"] = "list";
  out["data"] = std::move(data);
  response->send(200, {{"content-type", "application/json"}}, dump_json(out));
}

void one(const Context& context, HttpRequest request, std::shared_ptr<Response> response) {
  Json named;
  named["model"] = request.path.substr(std::string_view("/v1/models/").size());
  Context strict = context;
  strict.single_model_alias = false;
  const auto model = read_model(strict, named);
  if (!model.ok()) return send_error(*response, model.error());
  response->send(200, {{"content-type", "application/json"}}, dump_json(describe(**model)));
}

}  // namespace

std::vector<Endpoint> models_endpoints() {
  return {{"GET", "/v1/models", false, list}, {"GET", "/v1/models/*", false, one}};
}

}  // namespace tenon::api
