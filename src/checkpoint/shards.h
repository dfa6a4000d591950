// Which safetensors files of a folder make up a model, and their tensors together.
// With model.safetensors.index.json: the files it names, and every tensor it places must be where
// it says; other .safetensors files are ignored. Without: all *.safetensors, by name. Thread: any.
// Errors name file and tensor: not_found (absent shard or tensor), corrupt (a tensor in two shards,
// a bad index), and those of parse_safetensors.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "base/weight.h"
#include "checkpoint/checkpoint.h"

namespace tenon::checkpoint {

struct Shards {
  std::vector<WeightView> tensors;
  TensorFiles files;  // of every tensor
};
Result<Shards> load_shards(const std::string& folder);

}  // namespace tenon::checkpoint
