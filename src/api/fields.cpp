#include "api/fields.h"

#include <charconv>
#include <random>

#include "api/body.h"
#include "base/sampling.h"

namespace tenon::api {
namespace {

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();

// What readers see besides their value.
struct Reader {
  Surface surface;
  const engine::Model& model;
  const Limits& limits;
  GenerateOptions out;
  // Fields that only make sense together, judged at the end.
  std::optional<int64_t> max_tokens, max_completion_tokens, best_of;
  bool chat_logprobs = false;
  std::optional<int> chat_top;
  bool stream_options = false;
};

Status read_logit_bias(const Json& value, Reader& r) {
  if (!value.is_object())
    return invalid("logit_bias must be an object from token ids to numbers").at("logit_bias");
  r.out.sampling.logit_bias.clear();
  for (const auto& [key, bias] : value.items()) {
    int32_t id = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failed != std::errc() || end != key.data() + key.size() || id < 0 ||
        id >= r.model.vocab_size || key != std::to_string(id))  // "065" would be 65 a second time
      return invalid("logit_bias names '{}', which is not a token id from 0 to {}", excerpt(key),
                     r.model.vocab_size - 1)
          .at("logit_bias");
    auto number = as_number(bias, "logit_bias", -100, 100);
    if (!number.ok())
      return invalid("logit_bias['{}'] must be between -100 and 100", key).at("logit_bias");
    r.out.sampling.logit_bias.emplace_back(id, static_cast<float>(*number));
  }
  return {};
}

Status read_seed(const Json& value, Reader& r) {
  TENON_TRY(r.out.sampling.seed, as_bits64(value, "seed"));
  return {};
}

Status read_stop(const Json& value, Reader& r) {
  const Json list = value.is_array() ? value : Json::array({value});
  if (list.size() > static_cast<size_t>(r.limits.stops_max))
    return invalid("stop lists {} strings, at most {} are taken", list.size(), r.limits.stops_max)
        .at("stop");
  for (const Json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty())
      return invalid("stop must be a string or a list of strings, none of them empty").at("stop");
    r.out.stops.push_back(stop.get<std::string>());
    if (r.out.stops.back().size() > r.limits.stop_bytes_max)
      return invalid("a stop string may have at most {} bytes", r.limits.stop_bytes_max).at("stop");
  }
  return {};
}

Status read_max_tokens(const Json& value, Reader& r) {
  TENON_TRY(r.max_tokens, as_int(value, "max_tokens", 1, kIntMax, true));
  return {};
}
Status read_max_completion_tokens(const Json& value, Reader& r) {
  TENON_TRY(r.max_completion_tokens, as_int(value, "max_completion_tokens", 1, kIntMax, true));
  return {};
}

Status read_n(const Json& value, Reader& r) {
  TENON_TRY(const int64_t n, as_int(value, "n", 1, r.limits.n_max));
  r.out.n = static_cast<int>(n);
  return {};
}

Status read_logprobs(const Json& value, Reader& r) {
  if (r.surface == Surface::chat) {
    TENON_TRY(r.chat_logprobs, as_bool(value, "logprobs"));
    return {};
  }
  TENON_TRY(const int64_t top, as_int(value, "logprobs", 0, r.limits.top_logprobs_max));
  r.out.top_logprobs = static_cast<int>(top);
  return {};
}
Status read_top_logprobs(const Json& value, Reader& r) {
  TENON_TRY(const int64_t top, as_int(value, "top_logprobs", 0, r.limits.top_logprobs_max));
  r.chat_top = static_cast<int>(top);
  return {};
}

Status read_stream(const Json& value, Reader& r) {
  TENON_TRY(r.out.stream, as_bool(value, "stream"));
  return {};
}
Status read_stream_options(const Json& value, Reader& r) {
  if (!value.is_object()) return invalid("stream_options must be an object").at("stream_options");
  TENON_OK(only_keys(value, {"include_usage", "include_progress", "include_obfuscation"},
                     "stream_options"));
  r.stream_options = true;
  if (const Json* v = field(value, "include_usage")) {
    TENON_TRY(r.out.include_usage, as_bool(*v, "stream_options.include_usage"));
  }
  if (const Json* v = field(value, "include_progress")) {
    TENON_TRY(r.out.include_progress, as_bool(*v, "stream_options.include_progress"));
  }
  if (field(value, "include_obfuscation"))
    r.out.ignored.push_back("stream_options.include_obfuscation");
  return {};
}

Status read_ignore_eos(const Json& value, Reader& r) {
  TENON_TRY(r.out.ignore_end, as_bool(value, "ignore_eos"));
  return {};
}

// mlx-lm's name. 0: this reply is made without drafts. No value changes a token.
Status read_num_draft_tokens(const Json& value, Reader& r) {
  TENON_TRY(const int64_t n, as_int(value, "num_draft_tokens", 0, engine::kDraftDepthMax));
  r.out.draft_depth = static_cast<int>(n);
  return {};
}

Status read_add_generation_prompt(const Json& value, Reader& r) {
  TENON_TRY(r.out.add_generation_prompt, as_bool(value, "add_generation_prompt"));
  return {};
}
Status read_continue_final_message(const Json& value, Reader& r) {
  TENON_TRY(r.out.continue_final_message, as_bool(value, "continue_final_message"));
  return {};
}
Status read_template_kwargs(const Json& value, Reader& r) {
  if (!value.is_object())
    return invalid("chat_template_kwargs must be an object").at("chat_template_kwargs");
  for (const char* taken : {"messages", "tools", "add_generation_prompt", "continue_final_message",
                            "bos_token", "eos_token"})
    if (value.contains(taken))
      return invalid("chat_template_kwargs.{} is set by the server; use the request's own field",
                     taken)
          .at(std::string("chat_template_kwargs.") + taken);
  r.out.template_kwargs = value;
  return {};
}

Status read_best_of(const Json& value, Reader& r) {
  TENON_TRY(r.best_of, as_int(value, "best_of", 1, kIntMax));
  return {};
}
Status read_echo(const Json& value, Reader&) {
  TENON_TRY(const bool echo, as_bool(value, "echo"));
  if (echo) return unsupported("echo is not supported by this server").at("echo");
  return {};
}
Status accept(const Json&, Reader&) { return {}; }

constexpr unsigned kChat = 1, kCompletions = 2, kBoth = 3;
struct OtherField {
  const char* name;
  unsigned surfaces;
  Status (*read)(const Json& value, Reader& reader);
};
constexpr OtherField kOthers[] = {
    {"model", kBoth, accept},  // read by the endpoints
    {"messages", kChat, accept},
    {"prompt", kCompletions, accept},
    {"logit_bias", kBoth, read_logit_bias},
    {"seed", kBoth, read_seed},
    {"stop", kBoth, read_stop},
    {"max_tokens", kBoth, read_max_tokens},
    {"max_completion_tokens", kBoth, read_max_completion_tokens},
    {"n", kBoth, read_n},
    {"logprobs", kBoth, read_logprobs},
    {"top_logprobs", kChat, read_top_logprobs},
    {"stream", kBoth, read_stream},
    {"stream_options", kBoth, read_stream_options},
    {"ignore_eos", kBoth, read_ignore_eos},
    {"num_draft_tokens", kBoth, read_num_draft_tokens},
    {"add_generation_prompt", kChat, read_add_generation_prompt},
    {"continue_final_message", kChat, read_continue_final_message},
    {"chat_template_kwargs", kChat, read_template_kwargs},
    {"best_of", kCompletions, read_best_of},
    {"echo", kCompletions, read_echo},
};

// Cannot change the answer of this server; a wrong type is still refused.
enum class Kind { string, boolean, object };
struct IgnoredField {
  const char* name;
  Kind kind;
};
constexpr IgnoredField kIgnored[] = {
    {"user", Kind::string},
    {"metadata", Kind::object},
    {"store", Kind::boolean},
    {"service_tier", Kind::string},
    {"safety_identifier", Kind::string},
    {"prompt_cache_key", Kind::string},
    {"prompt_cache_retention", Kind::string},
    {"parallel_tool_calls", Kind::boolean},
};

// Known from OpenAI, mlx-lm, llama.cpp or vLLM, but not built: the values that mean "off" pass.
struct UnsupportedField {
  const char* name;
  const char* off;  // JSON; "" for none
};
constexpr UnsupportedField kUnsupported[] = {
    {"tools", "[]"},
    {"tool_choice", R"("none")"},
    {"functions", "[]"},
    {"function_call", R"("none")"},
    {"response_format", R"({"type":"text"})"},
    {"modalities", R"(["text"])"},
    {"suffix", R"("")"},
    {"audio", ""},
    {"prediction", ""},
    {"reasoning_effort", ""},
    {"verbosity", ""},
    {"web_search_options", ""},
    {"guided_json", ""},
    {"guided_regex", ""},
    {"guided_choice", ""},
    {"guided_grammar", ""},
    {"structured_outputs", ""},
    {"grammar", ""},
    {"json_schema", ""},
    {"chat_template", ""},
    {"documents", ""},
    {"adapters", ""},
    {"draft_model", ""},
    {"min_tokens", "0"},
    {"stop_token_ids", "[]"},
};

Status ignore(const IgnoredField& known, const Json& value, Reader& r) {
  const bool good = known.kind == Kind::string    ? value.is_string()
                    : known.kind == Kind::boolean ? value.is_boolean()
                                                  : value.is_object();
  const char* kind = known.kind == Kind::string    ? "a string"
                     : known.kind == Kind::boolean ? "true or false"
                                                   : "an object";
  if (!good) return invalid("{} must be {}", known.name, kind).at(known.name);
  r.out.ignored.push_back(known.name);
  return {};
}

Status read_sampling(const SamplingField& f, const Json& value, Reader& r) {
  if (f.is_whole()) {
    TENON_TRY(const int64_t n,
              as_int(value, f.name, static_cast<int64_t>(f.min), static_cast<int64_t>(f.max)));
    return f.set(r.out.sampling, static_cast<double>(n));
  }
  TENON_TRY(const double number, as_number(value, f.name, f.min, f.max, f.above_min));
  return f.set(r.out.sampling, number);
}

Status read_field(const std::string& name, const Json& value, Reader& r) {
  if (const SamplingField* f = find_sampling_field(name)) return read_sampling(*f, value, r);
  const unsigned surface = r.surface == Surface::chat ? kChat : kCompletions;
  for (const OtherField& f : kOthers)
    if (name == f.name && (f.surfaces & surface)) return f.read(value, r);
  for (const IgnoredField& f : kIgnored)
    if (name == f.name) return ignore(f, value, r);
  for (const UnsupportedField& f : kUnsupported)
    if (name == f.name) {
      if (*f.off && value == Json::parse(f.off)) return {};
      return unsupported("{} is not supported by this server", name)
          .at(name)
          .because("unsupported_field");
    }
  const std::string shown = excerpt(name);
  return invalid("{} is not a field this route knows", shown).at(shown).because("unknown_field");
}

// Fields that depend on one another.
Status settle(Reader& r) {
  if (r.max_tokens && r.max_completion_tokens && *r.max_tokens != *r.max_completion_tokens)
    return invalid("max_tokens is {} and max_completion_tokens is {}: send one of them",
                   *r.max_tokens, *r.max_completion_tokens)
        .at("max_completion_tokens");
  r.out.max_tokens = r.max_completion_tokens ? r.max_completion_tokens : r.max_tokens;
  if (r.chat_top && !r.chat_logprobs)
    return invalid("top_logprobs needs logprobs: true").at("top_logprobs");
  if (r.chat_logprobs) r.out.top_logprobs = r.chat_top.value_or(0);
  if (r.stream_options && !r.out.stream)
    return invalid("stream_options is for stream: true").at("stream_options");
  if (r.best_of && *r.best_of != 1 && *r.best_of != r.out.n)
    return unsupported("best_of other than n is not supported by this server").at("best_of");
  if (r.out.continue_final_message && r.out.add_generation_prompt.value_or(false))
    return invalid("continue_final_message and add_generation_prompt exclude each other")
        .at("continue_final_message");
  return {};
}

}  // namespace

Result<GenerateOptions> read_options(const Json& body, Surface surface, const engine::Model& model,
                                     const Limits& limits) {
  Reader reader{surface, model, limits, {}, {}, {}, {}, false, {}, false};
  reader.out.sampling = model.sampling;
  reader.out.sampling.seed = random_bits();
  for (const auto& [name, value] : body.items())
    if (!value.is_null()) TENON_OK(read_field(name, value, reader));
  TENON_OK(settle(reader));
  return std::move(reader.out);
}

uint64_t random_bits() {
  std::random_device device;
  const uint64_t high = device();
  return high << 32 | static_cast<uint32_t>(device());
}

}  // namespace tenon::api
