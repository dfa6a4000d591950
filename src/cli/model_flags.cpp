#include "cli/model_flags.h"

#include "base/log.h"
#include "cli/terminal.h"
#include "hub/hub.h"

namespace tenon::cli {

void ModelFlags::declare(Flags& flags, const std::string& log_level) {
  log_level_ = log_level;
  flags.text("model", &model_,
             "folder with config.json, .gguf file, or org/repo in the hub cache "
             "(without it: the default model)",
             "PATH");
  flags.choice("kernels", &options_.kernels, {"auto", "mlx", "tenon"}, "kernel family");
  flags.choice("device", &options_.device, {"auto", "cpu", "cuda", "metal"}, "where to compute");
  flags.choice("dtype", &options_.dtype, {"auto", "float32", "bfloat16", "float16"}, "activations");
  flags.choice("kv", &options_.kv, {"auto", "f32", "f16", "bf16", "q8", "q4"},
               "stored keys and values; auto: f16 with our kernels, else as --dtype");
  flags.integer("threads", &options_.threads, 0, 1024, "compute threads; 0: physical cores");
  flags.integer("context", &options_.context_len, 0, 1 << 24, "window in tokens; 0: the model's",
                "TOKENS");
  flags.choice("log-level", &log_level_, {"debug", "info", "warn", "error", "off"},
               "diagnostics on stderr");
}

void ModelFlags::declare_drafts(Flags& flags) {
  flags.text("draft", &options_.draft,
             "draft source: auto (what the checkpoint brings), none, ngram, model:PATH, "
             "mtp[:PATH], dspark:PATH",
             "SOURCE");
  flags.integer("draft-depth", &options_.draft_depth, -1, engine::kDraftDepthMax,
                "drafts in every round; 0: none, -1: as they pay");
}

void ModelFlags::declare_chat_template(Flags& flags) {
  flags.text("chat-template", &options_.chat_template_file,
             "Jinja file to use instead of the model's own template", "FILE");
}

Status ModelFlags::resolve() {
  LogLevel level = LogLevel::warn;
  if (parse_log_level(log_level_, &level)) set_log_level(level);
  TENON_TRY(hub::FoundModel found, hub::locate_model(model_));
  options_.model_path = found.path;
  options_.model_name = found.name;
  return {};
}

Result<std::unique_ptr<engine::LocalEngine>> ModelFlags::load() {
  TENON_OK(resolve());
  ProgressBar bar;
  options_.on_progress = [&bar](const std::string& stage, double fraction) {
    bar.show(stage, fraction);
  };
  auto loaded = engine::load_engine(options_);
  options_.on_progress = nullptr;
  return loaded;
}

}  // namespace tenon::cli
