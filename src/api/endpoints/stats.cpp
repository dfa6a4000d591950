// GET /stats: what the engine is doing, as one JSON object.
#include "api/api.h"

namespace tenon::api {
namespace {

Json describe(const engine::Stats& s) {
  Json out;
  out["ready"] = s.ready;
  out["running"] = s.running;
  out["waiting"] = s.waiting;
  out["requests"] = s.requests;
  out["finished"] = s.finished;
  out["failed"] = s.failed;
  out["cancelled"] = s.cancelled;
  out["refused"] = s.refused;
  out["prompt_tokens"] = s.prompt_tokens;
  out["completion_tokens"] = s.completion_tokens;
  out["steps"] = s.steps;
  out["kv_bytes"] = s.kv_bytes;
  out["weight_bytes"] = s.weight_bytes;
  out["kv_copies"] = s.kv_copies;
  out["prefill_tok_s"] = s.prefill_tok_s;
  out["decode_tok_s"] = s.decode_tok_s;
  out["draft"] = {{"rounds", s.drafts.rounds},
                  {"drafted", s.drafts.drafted},
                  {"accepted", s.drafts.accepted},
                  {"drafted_at", s.drafts.drafted_at},
                  {"accepted_at", s.drafts.accepted_at}};
  return out;
}

void handle(const Context& context, HttpRequest, std::shared_ptr<Response> response) {
  Json out = describe(context.engine->stats());
  out["models"] = Json::array();
  for (const auto& model : context.engine->models()) {
    Json item;
    item["id"] = model->name;
    item["profile"] = model->profile_id;
    item["kernels"] = model->kernels;
    item["dtype"] = model->dtype;
    item["device"] = model->device;
    item["draft"] = model->draft;
    item["context_len"] = model->context_len;
    item["vocab_size"] = model->vocab_size;
    out["models"].push_back(std::move(item));
  }
  response->send(200, {{"content-type", "application/json"}}, dump_json(out));
}

}  // namespace

std::vector<Endpoint> stats_endpoints() { return {{"GET", "/stats", false, handle}}; }

}  // namespace tenon::api
