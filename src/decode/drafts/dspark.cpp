// Draft source `dspark`: a drafter of blocks in the layout of dspark.json, for a target of any
// family. Drafts behind the first need a confidence: calibrated ones where the drafter brings them,
// else min_confidence.
#include "decode/block_source.h"

namespace tenon::decode {

Result<std::unique_ptr<DraftSource>> make_dspark(const DraftSpec& spec,
                                                 const DraftContext& context) {
  return make_block_source("dspark", graph::BlockLayout::dspark, spec, context);
}

}  // namespace tenon::decode
