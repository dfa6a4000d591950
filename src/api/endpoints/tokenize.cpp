// POST /tokenize {"content" or "prompt": text, "add_special": false, "parse_special": true,
// "model"}
// -> {"tokens": [ids], "count", "max_model_len"}. add_special: with what the tokenizer adds by
// itself.
#include "api/api.h"
#include "api/body.h"

namespace tenon::api {
namespace {

Result<bool> flag(const Json& body, const char* name, bool fallback) {
  const Json* value = field(body, name);
  return value ? as_bool(*value, name) : Result<bool>(fallback);
}

Result<Json> answer(const Context& context, const HttpRequest& request) {
  TENON_TRY(const Json body, read_body(request, context.limits));
  TENON_OK(only_keys(body, {"content", "prompt", "add_special", "parse_special", "model"}, ""));
  TENON_TRY(const auto model, read_model(context, body));
  if (!model->tokenizer)
    return unsupported("the model {} has no tokenizer", model->name).at("model");
  const char* name = field(body, "prompt") ? "prompt" : "content";
  const Json* value = field(body, name);
  if (!value) return invalid("content is missing").at("content");
  if (field(body, "prompt") && field(body, "content"))
    return invalid("content and prompt mean the same: send one").at("prompt");
  TENON_TRY(const std::string text, as_string(*value, name));
  TENON_TRY(const bool specials, flag(body, "add_special", false));
  TENON_TRY(const bool parse, flag(body, "parse_special", true));
  if (specials && !parse) return invalid("add_special needs parse_special").at("add_special");
  const auto control = parse ? text::Control::parse : text::Control::plain;
  TENON_TRY(const auto ids, specials ? model->tokenizer->encode_with_specials(text)
                                     : model->tokenizer->encode(text, control));
  Json out;
  out["tokens"] = ids;
  out["count"] = ids.size();
  out["max_model_len"] = model->context_len;
  return out;
}

void handle(const Context& context, HttpRequest request, std::shared_ptr<Response> response) {
  const Result<Json> result = answer(context, request);
  if (!result.ok()) return send_error(*response, result.error());
  response->send(200, {{"content-type", "application/json"}}, dump_json(*result));
}

}  // namespace

std::vector<Endpoint> tokenize_endpoints() { return {{"POST", "/tokenize", false, handle}}; }

}  // namespace tenon::api
