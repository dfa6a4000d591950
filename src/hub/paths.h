// Where models may lie on this machine; split from the door so tests can point it at made folders.
// Thread: any; reads the environment.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/hub.h"

namespace tenon::hub {

inline constexpr const char* kDefaultFile = "smollm2-135m-instruct-q4_1.gguf";
inline constexpr const char* kDefaultName = "smollm2-135m-instruct";

// Folders that may hold the default model, given the executable's folder: build tree, then install.
std::vector<std::filesystem::path> default_model_dirs(const std::filesystem::path& exe_dir);
std::filesystem::path executable_dir();
// HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_dir();

// Two components of [A-Za-z0-9._-], neither of them "." or holding "..": cannot leave the cache.
bool is_repo_name(std::string_view spec);
// models--org--repo/snapshots/REV of a cached repository: REV as refs/main says, else the newest.
std::optional<std::filesystem::path> snapshot_of(const std::filesystem::path& cache,
                                                 std::string_view repo);
// Client-visible name of a model path: "org/repo" for a snapshot, else the folder's or file's name.
std::string name_of(const std::filesystem::path& path);
bool is_model(const std::filesystem::path& path);  // a .gguf file or a folder with config.json

Result<FoundModel> locate_default(const std::vector<std::filesystem::path>& dirs);
std::vector<FoundModel> list_cache(const std::filesystem::path& cache);

}  // namespace tenon::hub
