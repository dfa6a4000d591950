// What a DSpark drafter's dspark.json says. Errors: invalid, unsupported, naming file and field.
// Units: drafts, tokens. Source: the layout's own description; its trainer writes these fields.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "graph/graph.h"

namespace tenon::graph {

struct DsparkConfig {
  int gamma = 0;  // drafts in a block
  int width = 0, num_layers = 0, num_heads = 0, ffn_width = 0;
  int rank = 0;  // of the table that says what follows a token
  std::vector<int> tap_layers;  // as their states lie side by side
  bool recurrent = false;  // the head over drafts is an RNN, else a Markov chain
  std::vector<float> thresholds;  // calibrated, one a draft; empty: none
  float eps = 0;
};

// `file`: its name, for messages. Checked against the target that is to be drafted for.
Result<DsparkConfig> read_dspark_config(const Json& json, const std::string& file,
                                        const ModelShape& target);

// Indices of layers, as a list of integers in [0, num_layers]. Errors name `field`.
Result<std::vector<int>> read_tap_layers(const Json& object, const char* field,
                                         const std::string& file, int num_layers);

}  // namespace tenon::graph
