// The draft source of a model: what --draft names, or what the checkpoint brings.
#include <filesystem>

#include "base/log.h"
#include "engine/loaded.h"

namespace tenon::engine {

namespace {

namespace fs = std::filesystem;

// Drafters keep their keys and values whole, whatever --kv says of the target.
graph::BuildOptions drafter_build(const Choice& choice) {
  graph::KvScheme kv;
  kv.dtype = choice.kv.dtype;
  return {choice.kernels, choice.dtype, kv};
}

// Drafts are ids: they mean something only where both models have the same words. Special tokens
// may differ, as those of relatives do; a draft that names another one is only wrong.
Status check_words(const text::Tokenizer* target, const text::Tokenizer* own,
                   const std::string& path) {
  if (!target || !own) return {};
  const int num = std::max(target->vocab_size(), own->vocab_size());
  const auto is_word = [](const text::Tokenizer& words, int32_t id) {
    return id < words.vocab_size() && !words.is_special(id) && !words.token_bytes(id).empty();
  };
  int differing = 0, first = -1;
  for (int32_t id = 0; id < num; ++id) {
    if (!is_word(*target, id) && !is_word(*own, id)) continue;
    if (target->token_bytes(id) == own->token_bytes(id)) continue;
    ++differing;
    if (first < 0) first = id;
  }
  if (differing == 0) return {};
  return unsupported(
      "--draft model:{}: its tokenizer is another one: {} of {} ids differ, {} is '{}' there and "
      "'{}' in the target",
      path, differing, num, first, own->token_bytes(first), target->token_bytes(first));
}

Result<std::unique_ptr<graph::Model>> load_drafting_model(const EngineOptions& options,
                                                          const Choice& choice, const Model& card,
                                                          const std::string& path) {
  TENON_TRY(auto checkpoint, checkpoint::Checkpoint::open(path));
  TENON_TRY(const profile::Resolved resolved, resolve_config(checkpoint->manifest()));
  EngineOptions own = options;
  own.model_path = path;
  own.chat_template_file.clear();
  TENON_TRY(const auto words, make_card(own, *checkpoint));
  TENON_OK(check_words(card.tokenizer.get(), words->tokenizer.get(), path));
  TENON_TRY(auto model, graph::build(resolved, checkpoint->manifest(), checkpoint->weights(),
                                     drafter_build(choice)));
  TENON_OK(checkpoint->weights().finish());
  return model;
}

bool has_head_folder(const checkpoint::Checkpoint& target) {
  return fs::exists(fs::path(target.manifest().path) / "mtp" / "config.json");
}

// From `path`; without one, from the target's own tensors or the folder mtp/ beside them.
Result<std::unique_ptr<graph::DraftHead>> load_head(const Choice& choice,
                                                    checkpoint::Checkpoint& target,
                                                    const std::string& path) {
  const graph::BuildOptions build = drafter_build(choice);
  if (path.empty() && (graph::has_draft_head(target.weights()) || !has_head_folder(target)))
    return graph::build_draft_head(target.manifest(), target.weights(), build);
  const fs::path folder = path.empty() ? fs::path(target.manifest().path) / "mtp" : fs::path(path);
  TENON_TRY(auto drafter, checkpoint::Checkpoint::open(folder.string()));
  TENON_TRY(auto head, graph::build_draft_head(drafter->manifest(), drafter->weights(), build));
  TENON_OK(drafter->weights().finish());
  return head;
}

Result<std::unique_ptr<graph::BlockDrafter>> load_block(const Choice& choice, graph::Model& target,
                                                        graph::BlockLayout layout,
                                                        const std::string& path) {
  TENON_TRY(auto drafter, checkpoint::Checkpoint::open(path, graph::block_config_file(layout)));
  TENON_TRY(auto built, graph::build_block_drafter(layout, drafter->manifest(), drafter->weights(),
                                                   target, drafter_build(choice)));
  TENON_OK(drafter->weights().finish());
  return built;
}

}  // namespace

Result<std::unique_ptr<decode::DraftSource>> load_drafts(const EngineOptions& options,
                                                         const Choice& choice, const Model& card,
                                                         checkpoint::Checkpoint& target,
                                                         graph::Model& model) {
  std::string text = options.draft;
  const bool has_head = graph::has_draft_head(target.weights()) || has_head_folder(target);
  if (text == "auto") text = has_head ? "mtp" : "none";
  TENON_TRY(const decode::DraftSpec spec, decode::parse_draft_spec(text));
  auto source = decode::make_draft_source(
      spec,
      {model,
       [&](const std::string& path) { return load_drafting_model(options, choice, card, path); },
       [&](const std::string& path) { return load_head(choice, target, path); },
       [&](graph::BlockLayout layout, const std::string& path) {
         return load_block(choice, model, layout, path);
       }});
  if (!source.ok() && !source.error().message.starts_with("--draft")) {
    Error error = std::move(source).error();
    error.message = fmt::format("--draft {}: {}", text, error.message);
    source = std::move(error);
  }
  // A head that came along and cannot be used is not what the user asked for.
  if (!source.ok() && options.draft == "auto") {
    log_warn("no drafts: {}", source.error().message);
    return std::unique_ptr<decode::DraftSource>();
  }
  if (source.ok() && spec.source == "none") source->reset();
  return source;
}

}  // namespace tenon::engine
