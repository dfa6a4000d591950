#include "checkpoint/gguf_model.h"

#include <algorithm>
#include <charconv>

#include "checkpoint/layout.h"

namespace tenon::checkpoint {

namespace {

std::string arch_key(const GgufArch& arch, std::string_view name) {
  return fmt::format("{}.{}", arch.name, name);
}

Result<const GgufArch*> find_arch(const GgufFile& file) {
  TENON_TRY(const auto name, gguf_string(file, "general.architecture"));
  if (!name) return not_found("{}: general.architecture is missing", file.source);
  std::string known;
  for (const GgufArch& arch : gguf_archs()) {
    if (arch.name == *name) return &arch;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", arch.name);
  }
  return unsupported("{}: GGUF architecture {} is not supported; supported: {}", file.source,
                     shown(*name), known);
}

Status put_key(const GgufFile& file, const GgufArch& arch, const GgufKey& row, Json& config) {
  const std::string key = arch_key(arch, row.gguf);
  if (!gguf_find(file, key)) {
    if (row.required) return not_found("{}: {} is missing", file.source, key);
    return {};
  }
  const std::string out(row.hf);
  if (row.kind == GgufKey::Kind::integer) {
    TENON_TRY(const auto value, gguf_int(file, key, 1, row.max));
    config[out] = *value;
    return {};
  }
  TENON_TRY(const auto value, gguf_number(file, key));
  if (*value <= 0) return corrupt("{}: {} is {}, must be positive", file.source, key, *value);
  config[out] = *value;
  return {};
}

// Heads, head width and what must agree with it.
Status put_heads(const GgufFile& file, const GgufArch& arch, Json& config) {
  const int64_t hidden = config["hidden_size"], heads = config["num_attention_heads"];
  if (!config.contains("num_key_value_heads")) config["num_key_value_heads"] = heads;
  const int64_t kv_heads = config["num_key_value_heads"];
  if (heads % kv_heads != 0)
    return corrupt("{}: {} attention heads are not a multiple of {} kv heads", file.source, heads,
                   kv_heads);
  const int64_t head_dim =
      config.contains("head_dim") ? config["head_dim"].get<int64_t>() : hidden / heads;
  if (head_dim < 1)
    return corrupt("{}: {} heads for {} embedding elements", file.source, heads, hidden);
  for (const char* name : {"attention.value_length", "rope.dimension_count"}) {
    TENON_TRY(const auto value, gguf_int(file, arch_key(arch, name), 0, INT32_MAX));
    if (value && *value != head_dim)
      return unsupported("{}: {} is {}, only the head width {} is supported", file.source,
                         arch_key(arch, name), *value, head_dim);
  }
  return {};
}

// rope.scaling.* in Hugging Face's spelling.
Status put_rope(const GgufFile& file, const GgufArch& arch, Json& config) {
  const auto key = [&](const char* name) { return arch_key(arch, fmt::format("rope.{}", name)); };
  if (arch.rope_traditional) config["rope_traditional"] = true;
  if (!config.contains("rope_theta")) config["rope_theta"] = 10000.0;
  TENON_TRY(const auto stored_type, gguf_string(file, key("scaling.type")));
  TENON_TRY(auto factor, gguf_number(file, key("scaling.factor")));
  if (!factor) {
    TENON_TRY(factor, gguf_number(file, key("scale_linear")));  // the older spelling
  }
  const std::string_view type = stored_type.value_or(factor ? "linear" : "none");
  if (type == "none" || (type == "linear" && factor.value_or(1) == 1)) return {};
  if (type != "linear" && type != "yarn")
    return unsupported("{}: {} {} is not supported; supported: none, linear, yarn", file.source,
                       key("scaling.type"), shown(type));
  if (!factor || *factor <= 0)
    return corrupt("{}: {} must be positive", file.source, key("scaling.factor"));
  Json scaling = {{"type", std::string(type)}, {"factor", *factor}};
  if (type == "yarn") {
    constexpr int64_t kContextMax = 1 << 30;
    TENON_TRY(const auto original,
              gguf_int(file, key("scaling.original_context_length"), 1, kContextMax));
    if (!original)
      return not_found("{}: {} is missing", file.source, key("scaling.original_context_length"));
    scaling["original_max_position_embeddings"] = *original;
    for (const char* name : {"beta_fast", "beta_slow"}) {
      TENON_TRY(const auto beta,
                gguf_number(file, key(fmt::format("scaling.yarn_{}", name).c_str())));
      if (beta) scaling[name] = *beta;
    }
  }
  config["rope_scaling"] = std::move(scaling);
  return {};
}

// End of text, of turn and of message all end a reply.
void put_stop_ids(const Json& vocab, Json& config) {
  if (vocab.contains("bos_id")) config["bos_token_id"] = vocab["bos_id"];
  Json eos = Json::array();
  for (const char* key : {"eos_id", "eot_id", "eom_id"})
    if (vocab.contains(key) && std::find(eos.begin(), eos.end(), vocab[key]) == eos.end())
      eos.push_back(vocab[key]);
  if (eos.size() == 1) config["eos_token_id"] = eos[0];
  if (eos.size() > 1) config["eos_token_id"] = std::move(eos);
}

// Embedding rows: the vocabulary as the weights have it, whatever the metadata says.
Result<int64_t> vocab_size(const GgufFile& file, const GgufArch& arch) {
  const WeightView* embedding = nullptr;
  for (const WeightView& tensor : file.tensors)
    if (tensor.name == "token_embd.weight") embedding = &tensor;
  if (!embedding) return not_found("{}: tensor token_embd.weight is missing", file.source);
  if (embedding->shape.size() != 2 || embedding->shape[0] < 1 || embedding->shape[0] > INT32_MAX)
    return corrupt("{}: tensor token_embd.weight has shape {}, expected [vocabulary, width]",
                   file.source, shape_text(embedding->shape));
  TENON_TRY(const auto said, gguf_int(file, arch_key(arch, "vocab_size"), 1, INT32_MAX));
  if (said && *said != embedding->shape[0])
    return corrupt("{}: {} is {}, but tensor token_embd.weight has {} rows", file.source,
                   arch_key(arch, "vocab_size"), *said, embedding->shape[0]);
  return embedding->shape[0];
}

Result<Json> make_config(const GgufFile& file, const GgufArch& arch, int64_t vocabulary) {
  Json config = Json::parse(arch.constants);
  config["model_type"] = std::string(arch.model_type);
  for (const GgufOnly& row : arch.only) {
    TENON_TRY(const auto value, gguf_int(file, arch_key(arch, row.gguf), INT32_MIN, INT32_MAX));
    if (value && *value != row.value)
      return unsupported("{}: {} is {}, only {} is supported", file.source,
                         arch_key(arch, row.gguf), *value, row.value);
  }
  for (const GgufKey& row : arch.keys) TENON_OK(put_key(file, arch, row, config));
  config["vocab_size"] = vocabulary;
  TENON_OK(put_heads(file, arch, config));
  TENON_OK(put_rope(file, arch, config));
  // The format has no field for it, and one size of Gemma 3 scales its scores otherwise: the one of
  // 62 layers.
  if (arch.name == "gemma3")
    config["query_pre_attn_scalar"] =
        config["num_hidden_layers"] == 62
            ? config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>()
            : config["head_dim"].get<int64_t>();
  return config;
}

std::optional<std::string_view> look_up(std::span<const GgufName> rows, std::string_view name) {
  for (const GgufName& row : rows)
    if (row.gguf == name) return row.hf;
  return std::nullopt;
}

// "blk.12.attn_q.weight" -> "model.layers.12.self_attn.q_proj.weight"; nothing when there is no
// row.
std::optional<std::string> canonical_name(const GgufArch& arch, std::string_view name,
                                          int64_t layers) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string_view stem = name.substr(0, dot);
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  constexpr std::string_view kBlock = "blk.";
  if (!stem.starts_with(kBlock)) {
    const auto hf = look_up(arch.names, stem);
    return hf ? std::optional(fmt::format("{}{}", *hf, suffix)) : std::nullopt;
  }
  stem.remove_prefix(kBlock.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), layer);
  const size_t digits = static_cast<size_t>(end - stem.data());
  // One spelling per layer, or two tensors could come out with one name.
  if (error != std::errc() || layer < 0 || layer >= layers ||
      fmt::format("{}", layer).size() != digits)
    return std::nullopt;
  if (digits == stem.size() || stem[digits] != '.') return std::nullopt;
  const auto hf = look_up(arch.block_names, stem.substr(digits + 1));
  return hf ? std::optional(fmt::format("model.layers.{}.{}{}", layer, *hf, suffix)) : std::nullopt;
}

Status put_tensors(const GgufFile& file, const GgufArch& arch, Loaded& out) {
  Json& config = out.manifest.config;
  const int64_t layers = config["num_hidden_layers"];
  bool head = false, attention_bias = false, mlp_bias = false;
  for (const WeightView& tensor : file.tensors) {
    const auto name = canonical_name(arch, tensor.name, layers);
    if (!name)
      return unsupported("{}: tensor {} is not known for architecture {} with {} layers",
                         file.source, shown(tensor.name), arch.name, layers);
    head |= *name == "lm_head.weight";
    attention_bias |= name->ends_with("_proj.bias") && name->find(".self_attn.") != name->npos;
    mlp_bias |= name->ends_with("_proj.bias") && name->find(".mlp.") != name->npos;
    out.tensors.push_back(tensor);
    out.tensors.back().name = *name;
  }
  config["tie_word_embeddings"] = !head;
  if (attention_bias) config["attention_bias"] = true;
  if (mlp_bias) config["mlp_bias"] = true;
  return {};
}

}  // namespace

Result<Loaded> gguf_model(const GgufFile& file, const std::string& path) {
  TENON_TRY(const auto parts, gguf_int(file, "split.count", 0, UINT16_MAX));
  if (parts.value_or(0) > 1)
    return unsupported("{}: one of {} parts; merge them into one file first", file.source, *parts);
  TENON_TRY(const GgufArch* arch, find_arch(file));
  TENON_TRY(const int64_t vocabulary, vocab_size(file, *arch));
  Loaded out;
  out.manifest.path = path;
  out.manifest.container = "gguf";
  TENON_TRY(out.manifest.config, make_config(file, *arch, vocabulary));
  TENON_TRY(out.text.gguf_vocab, gguf_vocab(file, vocabulary));
  put_stop_ids(out.text.gguf_vocab, out.manifest.config);
  TENON_TRY(const auto chat_template, gguf_string(file, "tokenizer.chat_template"));
  if (chat_template) out.text.chat_template = *chat_template;
  TENON_OK(put_tensors(file, *arch, out));
  return out;
}

}  // namespace tenon::checkpoint
