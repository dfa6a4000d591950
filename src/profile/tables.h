// What each graph needs and gives, and the profiles this build knows. Thread: built once,
// immutable.
#pragma once
#include <span>
#include <vector>

#include "profile/profile.h"

namespace tenon::profile {

struct GraphRule {
  Graph graph;
  Loader loader;
  Loop loop;
  std::vector<Capability> capabilities;  // what running this graph takes, besides loader and loop
};
const GraphRule& graph_rule(Graph graph);

inline constexpr Fidelity kL1{Tier::l1, Oracle::mlx_lm, Claim::bit_exact};
inline constexpr Fidelity kL2{Tier::l2, Oracle::mlx_optiq, Claim::bit_exact};
inline constexpr Fidelity kL3{Tier::l3, Oracle::none, Claim::measured};

// The least a composition needs: loader, loop, graph, generated. In this order; messages rely on
// it.
std::vector<Capability> derived_capabilities(const Composition& execution);

// "a, b, c".
std::string join(std::span<const Capability> capabilities);

// One of family_profiles(), by its id. CHECKs that it is there.
const Profile& family_profile(std::string_view id);

}  // namespace tenon::profile
