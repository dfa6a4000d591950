#include "hub/hub.h"

#include "hub/paths.h"

namespace tenon::hub {

namespace fs = std::filesystem;

namespace {

// Why an existing path is no model, in words that help.
Error not_a_model(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return not_found(
        "--model {}: the folder has no config.json; a model is a folder with "
        "config.json and safetensors, a .gguf file, or org/repo in the hub cache",
        path);
  }
  return not_found(
      "--model {}: not a .gguf file; a model is a folder with config.json and "
      "safetensors, a .gguf file, or org/repo in the hub cache",
      path);
}

}  // namespace

Result<FoundModel> locate_model(std::string_view spec) {
  if (spec.empty()) return locate_default(default_model_dirs(executable_dir()));
  std::string path(spec);
  std::error_code ignored;
  if (is_model(path)) return FoundModel{path, name_of(path)};
  if (fs::exists(path, ignored)) return not_a_model(path);
  if (!is_repo_name(spec)) {
    if (spec == kDefaultName) return locate_model("");
    return not_found("--model {}: no such file or folder", spec);
  }
  if (auto snapshot = snapshot_of(hub_cache_dir(), spec)) {
    return FoundModel{snapshot->string(), path};
  }
  return not_found("--model {}: no such file or folder, and not in the hub cache {}", spec,
                   hub_cache_dir().string());
}

std::vector<FoundModel> list_cached() { return list_cache(hub_cache_dir()); }

}  // namespace tenon::hub
