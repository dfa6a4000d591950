// tenon convert: a checkpoint as a new safetensors directory: quantized, dequantized, cast, or a
// GGUF file as it is.
#include <cstdio>

#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "hub/hub.h"

namespace tenon::cli {

namespace {

using checkpoint::Scheme;

constexpr const char* kModes[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};

// What a mode has when nothing else is said, as MLX defines it.
Scheme defaults_of(QuantMode mode) {
  switch (mode) {
    case QuantMode::affine: return {true, 4, 64, mode};
    case QuantMode::mxfp4: return {true, 4, 32, mode};
    case QuantMode::mxfp8: return {true, 8, 32, mode};
    case QuantMode::nvfp4: return {true, 4, 16, mode};
  }
  return {};
}

QuantMode mode_named(const std::string& name) {
  for (QuantMode mode : {QuantMode::mxfp4, QuantMode::mxfp8, QuantMode::nvfp4})
    if (name == quant_mode_name(mode)) return mode;
  return QuantMode::affine;
}

class ConvertVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.text("model", &model_,
               "folder with config.json, .gguf file, or org/repo in the hub cache "
               "(without it: the default model)",
               "PATH");
    flags.text("out", &out_, "the folder to write; must not exist", "DIR");
    flags.integer("bits", &bits_, 0, 8, "quantize every matrix; 0: as stored, or the mode's");
    flags.integer("group", &group_, 0, 128, "weights that share a scale; 0: the mode's");
    flags.choice("mode", &mode_, {kModes, std::end(kModes)}, "quantize the way MLX names so");
    flags.toggle("dequantize", &dequantize_, "floats instead of quantized matrices");
    flags.choice("dtype", &dtype_, {"auto", "float32", "bfloat16", "float16", "f32", "bf16", "f16"},
                 "floats written; auto: as stored");
    auto add_override = [this](const std::string& text) { return parse_override(text); };
    flags.add(
        "override", "PATTERN=BITS:GROUP",
        "matrices by module path, with * and ?; =none: floats (may be repeated, the last wins)",
        add_override, {.repeat = true});
    flags.toggle("json", &json_, "one JSON object");
  }

  Status check() override {
    if (out_.empty()) return invalid("--out: missing; give the folder to write");
    const bool quantize = bits_ > 0 || group_ > 0 || !mode_.empty();
    if (quantize && dequantize_)
      return invalid("--dequantize: not together with --bits, --group or --mode");
    if (dequantize_) options_.scheme = Scheme{.quantized = false};
    if (quantize) {
      Scheme scheme = defaults_of(mode_named(mode_));
      if (bits_ > 0) scheme.bits = bits_;
      if (group_ > 0) scheme.group_size = group_;
      if (Status good = checkpoint::check_scheme(scheme); !good)
        return invalid("--bits, --group: {}", good.error().message);
      options_.scheme = scheme;
    }
    for (auto& own : options_.overrides) {
      // A group that was not said is that of the others.
      const bool alike = options_.scheme && options_.scheme->mode == QuantMode::affine;
      if (own.scheme.quantized && own.scheme.group_size == 0)
        own.scheme.group_size = alike && quantize ? options_.scheme->group_size : 64;
      if (Status good = checkpoint::check_scheme(own.scheme); !good)
        return invalid("--override {}: {}", own.pattern, good.error().message);
    }
    if (dtype_ == "float32" || dtype_ == "f32") options_.dtype = Format::f32;
    if (dtype_ == "bfloat16" || dtype_ == "bf16") options_.dtype = Format::bf16;
    if (dtype_ == "float16" || dtype_ == "f16") options_.dtype = Format::f16;
    return {};
  }

  Result<int> run() override {
    TENON_TRY(const hub::FoundModel found, hub::locate_model(model_));
    TENON_TRY(auto from, checkpoint::Checkpoint::open(found.path));
    // A safetensors directory has a tokenizer.json of its own, which is copied.
    if (const Json& vocab = from->text().gguf_vocab; vocab.is_object()) {
      TENON_TRY(options_.tokenizer_json, text::tokenizer_json_of(text::gguf_vocab_of(vocab)));
    }
    InterruptGuard guard;
    ProgressBar bar;
    options_.on_progress = [&bar](double fraction) {
      bar.show("convert", fraction);
      return !InterruptGuard::is_raised();
    };
    TENON_TRY(const checkpoint::Converted done, checkpoint::convert(*from, out_, options_));
    bar.done();
    report(done);
    return 0;
  }

 private:
  std::string parse_override(const std::string& text) {
    const size_t equals = text.rfind('=');
    if (equals == 0 || equals == std::string::npos) return "must be PATTERN=BITS:GROUP";
    const std::string value = text.substr(equals + 1);
    Scheme scheme{.quantized = false};
    if (value != "none") {
      const size_t colon = value.find(':');
      std::optional<int64_t> bits = to_int(value.substr(0, colon)), group = 0;
      if (colon != std::string::npos) group = to_int(value.substr(colon + 1));
      const auto small = [](std::optional<int64_t> n) { return n && *n >= 0 && *n <= 128; };
      if (!small(bits) || !small(group)) return "must be PATTERN=BITS:GROUP or PATTERN=none";
      scheme = {true, static_cast<int>(*bits), static_cast<int>(*group), QuantMode::affine};
    }
    options_.overrides.push_back({text.substr(0, equals), scheme});
    return "";
  }

  void report(const checkpoint::Converted& done) const {
    if (json_) {
      const Json line = {{"out", out_},
                         {"bytes", done.bytes},
                         {"files", done.num_files},
                         {"bits_per_weight", done.bits_per_weight}};
      std::printf("%s\n", dump_json(line).c_str());
    } else {
      std::printf("%s: %.1f MB of weights in %d file%s, %.2f bits a weight\n", out_.c_str(),
                  static_cast<double>(done.bytes) / 1e6, done.num_files,
                  done.num_files == 1 ? "" : "s", done.bits_per_weight);
    }
  }

  checkpoint::ConvertOptions options_;
  std::string model_, out_, mode_, dtype_ = "auto";
  int bits_ = 0, group_ = 0;
  bool dequantize_ = false, json_ = false;
};

}  // namespace

TENON_COMMAND(convert, "quantize, dequantize or cast a model; GGUF to safetensors", ConvertVerb);

}  // namespace tenon::cli
