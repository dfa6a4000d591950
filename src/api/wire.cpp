#include "api/wire.h"

#include <ctime>

namespace tenon::api {
namespace {

Json logprob_value(float x) {
  return x > -9999.0f ? Json(static_cast<double>(x)) : Json(-9999.0);  // also NaN, which JSON lacks
}

Json usage_json(const UsageTotals& totals) {
  Json details;
  details["cached_tokens"] = totals.cached_tokens;
  Json usage;
  usage["prompt_tokens"] = totals.prompt_tokens;
  usage["completion_tokens"] = totals.completion_tokens;
  usage["total_tokens"] = totals.prompt_tokens + totals.completion_tokens;
  usage["prompt_tokens_details"] = std::move(details);
  return usage;
}

std::string sse(const Json& value) { return "data: " + dump_json(value) + "\n\n"; }

Json none() { return Json(nullptr); }

}  // namespace

Wire::Wire(Surface surface, std::shared_ptr<const engine::Model> model,
           const GenerateOptions& options)
    : surface_(surface),
      model_(std::move(model)),
      id_(fmt::format("{}-{:016x}{:016x}", surface == Surface::chat ? "chatcmpl" : "cmpl",
                      random_bits(), random_bits())),
      created_(std::time(nullptr)),
      // Replies with a seed repeat as long as this stays the same.
      fingerprint_(fmt::format("{}-{}-{}", model_->kernels, model_->device, model_->dtype)),
      seed_(options.sampling.seed),
      top_logprobs_(options.top_logprobs),
      include_usage_(options.include_usage) {}

Json Wire::head(const char* object) {
  Json out;
  out["id"] = id_;
  out["object"] = object;
  out["created"] = created_;
  out["model"] = model_->name;
  out["system_fingerprint"] = fingerprint_;
  if (!seed_sent_) out["seed"] = seed_;
  seed_sent_ = true;
  return out;
}

std::string Wire::event(Json choices, Json usage, const char* extra_name, Json extra) {
  Json out = head(surface_ == Surface::chat ? "chat.completion.chunk" : "text_completion");
  out["choices"] = std::move(choices);
  if (include_usage_) out["usage"] = std::move(usage);
  if (extra_name) out[extra_name] = std::move(extra);
  return sse(out);
}

std::string Wire::role(int index) {
  if (surface_ == Surface::completions) return "";
  Json delta;
  delta["role"] = "assistant";
  delta["content"] = "";
  Json choice;
  choice["index"] = index;
  choice["delta"] = std::move(delta);
  choice["logprobs"] = none();
  choice["finish_reason"] = none();
  return event(Json::array({std::move(choice)}), none());
}

std::string Wire::delta(int index, const Piece& piece) {
  if (piece.text.empty() && piece.entries.empty()) return "";
  Json choice;
  choice["index"] = index;
  if (surface_ == Surface::chat) {
    choice["delta"] = Json::object();
    choice["delta"]["content"] = piece.text;
  } else {
    choice["text"] = piece.text;
  }
  choice["logprobs"] = logprobs(piece.entries);
  choice["finish_reason"] = none();
  return event(Json::array({std::move(choice)}), none());
}

std::string Wire::final(int index, const char* finish_reason) {
  Json choice;
  choice["index"] = index;
  if (surface_ == Surface::chat)
    choice["delta"] = Json::object();
  else
    choice["text"] = "";
  choice["logprobs"] = none();
  choice["finish_reason"] = finish_reason;
  return event(Json::array({std::move(choice)}), none());
}

std::string Wire::progress(int index, const engine::Progress& progress) {
  Json extra;
  extra["index"] = index;
  extra["processed"] = progress.computed;
  extra["total"] = progress.total;
  return event(Json::array(), none(), "prompt_progress", std::move(extra));
}

std::string Wire::usage(const UsageTotals& totals) {
  return include_usage_ ? event(Json::array(), usage_json(totals)) : "";
}

std::string Wire::error(const Error& error) { return "data: " + error_body(error) + "\n\n"; }

Json Wire::choice(int index, const Piece& all, const char* finish_reason) const {
  Json choice;
  choice["index"] = index;
  if (surface_ == Surface::chat) {
    Json message;
    message["role"] = "assistant";
    message["content"] = all.text;
    message["refusal"] = none();
    choice["message"] = std::move(message);
  } else {
    choice["text"] = all.text;
  }
  choice["logprobs"] = logprobs(all.entries);
  choice["finish_reason"] = finish_reason;
  return choice;
}

std::string Wire::body(Json choices, const UsageTotals& totals) {
  Json out = head(surface_ == Surface::chat ? "chat.completion" : "text_completion");
  out["choices"] = std::move(choices);
  out["usage"] = usage_json(totals);
  return dump_json(out);
}

Json Wire::logprobs(const std::vector<TokenEntry>& entries) const {
  if (top_logprobs_ < 0) return none();
  return surface_ == Surface::chat ? chat_logprobs(entries) : legacy_logprobs(entries);
}

// Part of a character becomes U+FFFD, as the client joins `bytes`, not this.
std::string Wire::token_text(int32_t id) const {
  const Json quoted = std::string(model_->tokenizer->token_bytes(id));
  auto clean = parse_json(dump_json(quoted));
  return clean.ok() ? clean->get<std::string>() : "\xEF\xBF\xBD";
}

Json Wire::chat_logprobs(const std::vector<TokenEntry>& entries) const {
  const auto show = [this](int32_t id, float logprob) {
    Json bytes = Json::array();
    for (const char c : model_->tokenizer->token_bytes(id))
      bytes.push_back(static_cast<unsigned char>(c));
    Json out;
    out["token"] = token_text(id);
    out["logprob"] = logprob_value(logprob);
    out["bytes"] = std::move(bytes);
    return out;
  };
  Json content = Json::array();
  for (const TokenEntry& entry : entries) {
    Json item = show(entry.id, entry.logprob);
    item["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : entry.top)
      item["top_logprobs"].push_back(show(other.id, other.logprob));
    content.push_back(std::move(item));
  }
  Json out;
  out["content"] = std::move(content);
  out["refusal"] = none();
  return out;
}

Json Wire::legacy_logprobs(const std::vector<TokenEntry>& entries) const {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const TokenEntry& entry : entries) {
    tokens.push_back(token_text(entry.id));
    values.push_back(logprob_value(entry.logprob));
    offsets.push_back(entry.char_start);
    Json top = Json::object();
    // Best first, so of two tokens that print alike the likelier one is kept; the one drawn is
    // always there.
    top[token_text(entry.id)] = logprob_value(entry.logprob);
    for (const TokenLogprob& other : entry.top) {
      const std::string text = token_text(other.id);
      if (!top.contains(text)) top[text] = logprob_value(other.logprob);
    }
    tops.push_back(std::move(top));
  }
  Json out;
  out["tokens"] = std::move(tokens);
  out["token_logprobs"] = std::move(values);
  out["top_logprobs"] = top_logprobs_ > 0 ? std::move(tops) : none();
  out["text_offset"] = std::move(offsets);
  return out;
}

}  // namespace tenon::api
