// POST /v1/chat/completions
#include "api/api.h"
#include "api/body.h"
#include "api/fields.h"
#include "api/prompts.h"
#include "api/reply_stream.h"

namespace tenon::api {
namespace {

Status answer(const Context& context, const HttpRequest& request,
              std::shared_ptr<Response> response) {
  TENON_TRY(const Json body, read_body(request, context.limits));
  TENON_TRY(auto model, read_model(context, body));
  TENON_TRY(auto options, read_options(body, Surface::chat, *model, context.limits));
  TENON_TRY(Ids ids, chat_prompt(body, *model, &options));
  ReplyStream::run(context, Surface::chat, std::move(model), {std::move(ids)}, std::move(options),
                   std::move(response));
  return {};
}

void handle(const Context& context, HttpRequest request, std::shared_ptr<Response> response) {
  const Status status = answer(context, request, response);
  if (!status.ok()) send_error(*response, status.error());
}

}  // namespace

std::vector<Endpoint> chat_completions_endpoints() {
  return {{"POST", "/v1/chat/completions", false, handle}};
}

}  // namespace tenon::api
