// The door of hub: which models are on this machine, and where.
// A model is a directory with config.json, a .gguf file, or org/repo in the local hub cache
// (HF_HOME/hub layout: models--org--repo/snapshots/REV). Nothing is fetched at run time here.
// Thread: any. No MLX.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tenon::hub {

struct FoundModel {
  std::string path;  // directory or .gguf file
  std::string name;  // what clients call it
};

// `spec` empty: the embedded default, looked for in share/models beside the executable's tree, then
// the install prefix. Errors: not_found, saying where it was looked for and what to run.
Result<FoundModel> locate_model(std::string_view spec);
std::vector<FoundModel> list_cached();

}  // namespace tenon::hub
