// From a path to a model that runs: open, resolve, choose device and kernels, build, account for
// memory.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "engine/loaded.h"

namespace tenon::engine {

namespace {

namespace mx = mlx::core;

constexpr int kDefaultContext = 2048;      // for configs that state none
constexpr double kMemoryShare = 0.75;  // of physical memory, for weights and caches

Status choose_device(const std::string& name, Choice& choice) {
  const bool has_gpu = mx::is_available(mx::Device(mx::Device::gpu));
  const bool has_metal = mx::metal::is_available();
  const std::string gpu = has_metal ? "metal" : "cuda";
  if (name != "auto" && name != "cpu" && name != "cuda" && name != "metal")
    return invalid("--device {}: use auto, cpu, cuda or metal", name);
  if (name == "cpu" || (name == "auto" && !has_gpu)) {
    choice.device = mx::Device(mx::Device::cpu);
    choice.device_name = "cpu";
    return {};
  }
  if (!has_gpu || (name != "auto" && name != gpu))
    return unsupported("--device {}: this MLX library has {}", name,
                       has_gpu ? gpu + " and cpu" : "only cpu");
  choice.device = mx::Device(mx::Device::gpu);
  choice.device_name = gpu;
  return {};
}

// Physical memory less the weights; what else the machine runs is not ours to guess.
uint64_t cache_budget(uint64_t weight_bytes) {
  const double physical = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const double share = physical * kMemoryShare - static_cast<double>(weight_bytes);
  return share > 0 ? static_cast<uint64_t>(share) : 0;
}

// A context that the machine can hold, and the bytes caches may take in all.
Status account(const EngineOptions& options, graph::Model& model, const decode::DraftSource* drafts,
               Model& card, uint64_t& cache_bytes_max) {
  const double bytes_per_token =
      model.caches().bytes_per_token() + (drafts ? drafts->bytes_per_token() : 0);
  cache_bytes_max =
      cache_budget(model.shape().weight_bytes + (drafts ? drafts->weight_bytes() : 0));
  const int stated = model.shape().context_len > 0 ? model.shape().context_len : kDefaultContext;
  card.context_len = options.context_len > 0 ? options.context_len : stated;
  if (options.context_len > stated)
    log_warn("--context {} is past the {} positions this model was trained for",
             options.context_len, stated);
  const double fits = static_cast<double>(cache_bytes_max) / std::max(bytes_per_token, 1.0);
  if (card.context_len <= fits) return {};
  if (options.context_len > 0)
    return too_large("--context {} needs {:.1f} GB of cache, {:.1f} GB are free: use at most {}",
                     options.context_len, options.context_len * bytes_per_token / 1e9,
                     static_cast<double>(cache_bytes_max) / 1e9, static_cast<int>(fits));
  card.context_len = static_cast<int>(fits);
  log_warn("context cut to {} tokens: that is what memory holds", card.context_len);
  if (card.context_len < 1) return too_large("no memory is left for a cache of one token");
  return {};
}

// kv_config.json: a list of {layer_idx, bits, group_size}.
Result<std::map<int, graph::KvScheme::Quantized>> read_kv_config(const Json& list) {
  constexpr const char* kWhere = "kv_config.json";
  std::map<int, graph::KvScheme::Quantized> layers;
  if (list.is_null()) return layers;
  if (!list.is_array()) return invalid("{} must be a list of layers", kWhere);
  for (const Json& entry : list) {
    if (!entry.is_object()) return invalid("{} must be a list of objects", kWhere);
    TENON_TRY(const int64_t layer, json_int(entry, "layer_idx", kWhere, 0, 1 << 16));
    TENON_TRY(const int64_t bits, json_int(entry, "bits", kWhere, 2, 8));
    TENON_TRY(const int64_t group, json_int_or(entry, "group_size", kWhere, 64, 32, 128));
    if (bits == 7 || (group != 32 && group != 64 && group != 128))
      return invalid(
          "{}: layer {}: {} bits in groups of {}: there are 2, 3, 4, 5, 6 or 8 bits in "
          "groups of 32, 64 or 128",
          kWhere, layer, bits, group);
    const graph::KvScheme::Quantized scheme{static_cast<int>(bits), static_cast<int>(group)};
    if (!layers.emplace(static_cast<int>(layer), scheme).second)
      return invalid("{} lists layer {} twice", kWhere, layer);
  }
  return layers;
}

// What --kv says; else what the checkpoint says of its layers; else floats.
Result<graph::KvScheme> choose_kv(const std::string& flag, const Json& kv_config,
                                  const Choice& choice) {
  graph::KvScheme kv;
  // Our kernels keep keys and values in half precision: the reading of them bounds long contexts.
  const bool half = std::string_view(choice.kernels->name()) == "tenon";
  kv.dtype = half ? mx::float16 : choice.dtype;
  if (flag == "q8" || flag == "q4") {
    kv.all.bits = flag == "q8" ? 8 : 4;
  } else if (flag != "auto") {
    TENON_TRY(kv.dtype, ops::parse_dtype(flag));
  } else {
    TENON_TRY(kv.layers, read_kv_config(kv_config));
  }
  return kv;
}

// A token stands for at most so many bytes of text, so text past this many bytes cannot fit and
// need not be tokenized to find out. A normalizer may shorten text before it is split: NFC to a
// third at most.
int64_t prompt_bytes_max(const Model& card) {
  constexpr int64_t kNormalizerShrink = 3;
  if (!card.tokenizer || !card.tokenizer->bytewise()) return 0;
  size_t longest = 1;
  for (int32_t id = 0; id < card.tokenizer->vocab_size(); ++id)
    longest = std::max(longest, card.tokenizer->token_bytes(id).size());
  return static_cast<int64_t>(longest) * kNormalizerShrink * card.context_len;
}

void report(const EngineOptions& options, const char* stage, double fraction) {
  if (options.on_progress) options.on_progress(stage, fraction);
}

}  // namespace

// What a file or a flag says may stand in a message; a message stays one line of a length to read.
Error one_line(Error error) {
  constexpr size_t kLen = 2000;
  if (error.message.size() > kLen) error.message = error.message.substr(0, kLen) + "...";
  for (char& c : error.message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return error;
}

Error in_file(Error error, const std::string& path) {
  error = one_line(std::move(error));
  // A message may begin with the bare name of the file.
  const std::string name = std::filesystem::path(path).filename().string() + ": ";
  if (error.message.starts_with(name)) error.message.erase(0, name.size());
  if (error.message.find(path) == std::string::npos)
    error.message = fmt::format("{}: {}", path, error.message);
  return error;
}

Result<profile::Resolved> resolve_config(const profile::Manifest& manifest) {
  auto resolved = profile::resolve(manifest);
  if (resolved.ok()) return resolved;
  const bool folder = manifest.container != "gguf";
  return in_file(
      std::move(resolved).error(),
      folder ? (std::filesystem::path(manifest.path) / "config.json").string() : manifest.path);
}

Result<Choice> choose(const EngineOptions& options, const checkpoint::Checkpoint& checkpoint,
                      const checkpoint::Weights& weights) {
  Choice choice;
  TENON_TRY(choice.resolved, resolve_config(checkpoint.manifest()));
  TENON_OK(choose_device(options.device, choice));
  if (options.dtype == "auto") {
    // Low-precision arithmetic is emulated on the CPU: slower and less exact than float32.
    const bool cpu = choice.device_name == "cpu";
    TENON_TRY(choice.dtype, cpu ? Result<mx::Dtype>(mx::float32) : graph::stored_dtype(weights));
  } else {
    TENON_TRY(choice.dtype, ops::parse_dtype(options.dtype));
  }
  TENON_TRY(choice.kernels,
            ops::make_kernels({options.kernels, choice.device, choice.dtype, options.threads}));
  if (options.kernels == "auto" && choice.device_name == "cpu" &&
      std::string_view(choice.kernels->name()) == "mlx")
    log_warn("--dtype {} has no kernels of ours on the CPU: stock MLX ones run, many times slower",
             ops::dtype_name(choice.dtype));
  TENON_TRY(choice.kv, choose_kv(options.kv, checkpoint.manifest().kv_config, choice));
  return choice;
}

namespace {

Result<LoadedModel> load_named(const EngineOptions& options) {
  report(options, "reading headers", 0);
  TENON_TRY(auto checkpoint, checkpoint::Checkpoint::open(options.model_path));
  checkpoint::Weights& weights = checkpoint->weights();
  TENON_TRY(const Choice choice, choose(options, *checkpoint, weights));
  mx::set_default_device(choice.device);
  report(options, "tokenizer", 0.05);
  TENON_TRY(auto card, make_card(options, *checkpoint));
  report(options, "weights", 0.2);
  TENON_TRY(auto model, graph::build(choice.resolved, checkpoint->manifest(), weights,
                                     {choice.kernels, choice.dtype, choice.kv}));
  LoadedModel loaded;
  TENON_TRY(loaded.drafts, load_drafts(options, choice, *card, *checkpoint, *model));
  TENON_OK(weights.finish());
  TENON_OK(account(options, *model, loaded.drafts.get(), *card, loaded.cache_bytes_max));
  card->vocab_size = model->shape().vocab_size;
  card->prompt_bytes_max = prompt_bytes_max(*card);
  card->profile_id = choice.resolved.profile->id;
  card->kernels = choice.kernels->name();
  card->dtype = ops::dtype_name(choice.dtype);
  card->device = choice.device_name;
  card->draft = loaded.drafts ? loaded.drafts->name() : "none";
  if (loaded.drafts && options.draft_depth < 0) {
    report(options, "measuring", 0.95);
    loaded.step_cost = decode::StepCost::measure(*model);
  }
  loaded.card = std::move(card);
  loaded.graph = std::move(model);
  report(options, "ready", 1);
  return loaded;
}

}  // namespace

Result<LoadedModel> load_model(const EngineOptions& options) try {
  auto loaded = load_named(options);
  // Flags are about the command, not about the file.
  if (loaded.ok()) return loaded;
  if (loaded.error().message.starts_with("--")) return one_line(std::move(loaded).error());
  return in_file(std::move(loaded).error(), options.model_path);
} catch (const std::exception& e) {
  return internal("{}: {}", options.model_path, e.what());
}

}  // namespace tenon::engine
