// POST /detokenize {"tokens": [ids], "skip_special": false, "model"} -> {"content": text}
#include "api/api.h"
#include "api/body.h"

namespace tenon::api {
namespace {

Result<Json> answer(const Context& context, const HttpRequest& request) {
  TENON_TRY(const Json body, read_body(request, context.limits));
  TENON_OK(only_keys(body, {"tokens", "skip_special", "model"}, ""));
  TENON_TRY(const auto model, read_model(context, body));
  if (!model->tokenizer)
    return unsupported("the model {} has no tokenizer", model->name).at("model");
  const Json* tokens = field(body, "tokens");
  if (!tokens) return invalid("tokens is missing").at("tokens");
  TENON_TRY(const auto ids, as_ids(*tokens, "tokens", model->tokenizer->vocab_size()));
  bool skip = false;
  if (const Json* value = field(body, "skip_special")) {
    TENON_TRY(skip, as_bool(*value, "skip_special"));
  }
  Json out;
  TENON_TRY(out["content"], model->tokenizer->decode(ids, skip));
  return out;
}

void handle(const Context& context, HttpRequest request, std::shared_ptr<Response> response) {
  const Result<Json> result = answer(context, request);
  if (!result.ok()) return send_error(*response, result.error());
  response->send(200, {{"content-type", "application/json"}}, dump_json(*result));
}

}  // namespace

std::vector<Endpoint> detokenize_endpoints() { return {{"POST", "/detokenize", false, handle}}; }

}  // namespace tenon::api
