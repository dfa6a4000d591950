// The builders that families/<family>.cpp define, one per ENTRY in families.def.
#pragma once
#include "graph/graph.h"

namespace tenon::graph {

using FamilyBuilder = Result<std::unique_ptr<Model>> (*)(const profile::Resolved&,
                                                         const profile::Manifest&,
                                                         checkpoint::Weights&, const BuildOptions&);
#define ENTRY(family)                                                                           \
  Result<std::unique_ptr<Model>> build_##family(const profile::Resolved&,                       \
                                                const profile::Manifest&, checkpoint::Weights&, \
                                                const BuildOptions&);
#include "graph/families.def"
#undef ENTRY

}  // namespace tenon::graph
