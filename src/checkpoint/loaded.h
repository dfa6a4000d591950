// What a reader of one format gives: everything Checkpoint hands out, as plain data.
// Thread: built once, then owned by a Checkpoint. Tensor views keep their files mapped.
#pragma once
#include <string>
#include <vector>

#include "base/weight.h"
#include "checkpoint/checkpoint.h"

namespace tenon::checkpoint {

struct Loaded {
  profile::Manifest manifest;
  TextFiles text;
  std::vector<WeightView> tensors;  // canonical names, all different
  TensorFiles files;                // of tensors, where there may be several files
  Json quantization;                // the config's MLX object, null when there is none
};

}  // namespace tenon::checkpoint
