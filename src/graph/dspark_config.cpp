#include "graph/dspark_config.h"

namespace tenon::graph {

namespace {

constexpr int kThresholdsMax = 1024;

Status check_kind(const Json& json, const std::string& file) {
  TENON_TRY(const std::string kind, json_string_or(json, "kind", file, ""));
  if (kind != "dspark-drafter")
    return unsupported("{}: kind '{}' is not dspark-drafter: name the folder of a DSpark drafter",
                       file, kind);
  TENON_TRY(const std::string variant, json_string_or(json, "variant", file, ""));
  if (variant != "dspark" && variant != "dflash")
    return unsupported(
        "{}: variant '{}' is a drafter of the first generation, which is not built: train it again "
        "(there are dspark and its earlier stamp dflash)",
        file, variant);
  TENON_TRY(const int64_t version, json_int(json, "version", file));
  if (version != 1) return unsupported("{}: version {}: this build reads 1", file, version);
  return {};
}

Result<Json> object_of(const Json& json, const char* key, const std::string& file) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_object())
    return invalid("{}: {} must be an object", file, key).at(key);
  return *it;
}

Status read_sizes(const Json& config, const std::string& where, DsparkConfig& c) {
  const auto size = [&](const char* key, int otherwise, int max) {
    return json_int_or(config, key, where, otherwise, 1, max);
  };
  TENON_TRY(c.gamma, size("gamma", 5, 64));
  TENON_TRY(c.width, size("dDraft", 1024, 1 << 16));
  TENON_TRY(c.num_layers, size("nLayers", 5, 256));
  TENON_TRY(c.num_heads, size("nHeads", 8, 1 << 12));
  TENON_TRY(c.rank, size("markovRank", 256, 1 << 16));
  TENON_TRY(const int64_t times, size("ffMult", 2, 64));
  c.ffn_width = static_cast<int>(times) * c.width;
  if (c.width % c.num_heads != 0)
    return invalid("{}: dDraft {} is not a multiple of nHeads {}", where, c.width, c.num_heads)
        .at("nHeads");
  return {};
}

// Thresholds of a calibration: confidences below them are not worth a verification.
Status read_thresholds(const Json& config, const std::string& where, DsparkConfig& c) {
  const auto sts = config.find("sts");
  if (sts == config.end() || sts->is_null()) return {};
  const auto list = sts->is_object() ? sts->find("thresholds") : sts->end();
  if (!sts->is_object() || list == sts->end() || !list->is_array() ||
      static_cast<int>(list->size()) < c.gamma || list->size() > kThresholdsMax)
    return invalid("{}: sts.thresholds must be a list of {} numbers, one a draft", where, c.gamma)
        .at("sts");
  for (const Json& entry : *list) {
    const double value = entry.is_number() ? entry.get<double>() : -1;
    if (!(value >= 0 && value <= 1))
      return invalid("{}: sts.thresholds: {} is not a number from 0 to 1", where, dump_json(entry))
          .at("sts");
    c.thresholds.push_back(static_cast<float>(value));
  }
  return {};
}

Status check_dims(const Json& dims, const std::string& where, const ModelShape& target,
                  DsparkConfig& c) {
  TENON_TRY(const int64_t hidden, json_int(dims, "hiddenSize", where, 1, 1 << 24));
  TENON_TRY(const int64_t vocab, json_int(dims, "vocabSize", where, 1, 1 << 24));
  TENON_TRY(const double eps, json_number_or(dims, "eps", where, 1e-6));
  if (!(eps >= 0 && eps < 1)) return invalid("{}: eps {} is not in [0, 1)", where, eps).at("eps");
  c.eps = static_cast<float>(eps);
  if (hidden != target.hidden_size)
    return unsupported(
        "{}: hiddenSize {}, the target's states have {}: it belongs to another model", where,
        hidden, target.hidden_size);
  if (vocab != target.vocab_size)
    return unsupported("{}: vocabSize {}, the target has {} logits: it belongs to another model",
                       where, vocab, target.vocab_size);
  return {};
}

}  // namespace

Result<std::vector<int>> read_tap_layers(const Json& object, const char* field,
                                         const std::string& file, int num_layers) {
  const auto list = object.find(field);
  if (list == object.end() || !list->is_array() || list->empty() || list->size() > 1024)
    return invalid("{}: {} must be a list of layers of the target", file, field).at(field);
  std::vector<int> layers;
  for (const Json& entry : *list) {
    const bool whole = entry.is_number_integer();
    const int64_t layer = whole ? entry.get<int64_t>() : -1;
    if (layer < 0 || layer > num_layers)
      return invalid(
                 "{}: {}: {} is not a layer of the target, which has 0 to {} ({}: after the "
                 "final norm)",
                 file, field, dump_json(entry), num_layers, num_layers)
          .at(field);
    layers.push_back(static_cast<int>(layer));
  }
  return layers;
}

Result<DsparkConfig> read_dspark_config(const Json& json, const std::string& file,
                                        const ModelShape& target) {
  TENON_OK(check_kind(json, file));
  TENON_TRY(const Json config, object_of(json, "config", file));
  TENON_TRY(const Json dims, object_of(json, "dims", file));
  const std::string where = file + ": config";
  DsparkConfig c;
  TENON_OK(check_dims(dims, file + ": dims", target, c));
  TENON_OK(read_sizes(config, where, c));
  TENON_TRY(c.tap_layers, read_tap_layers(config, "tapLayers", where, target.num_layers));
  TENON_TRY(const std::string head, json_string_or(config, "seqHead", where, "markov"));
  if (head != "markov" && head != "rnn")
    return unsupported("{}: seqHead '{}': there are markov and rnn", where, head);
  c.recurrent = head == "rnn";
  TENON_OK(read_thresholds(config, where, c));
  return c;
}

}  // namespace tenon::graph
