// Which code of this build runs a resolved profile. Model files never reach this: ids come from the
// engine's own list, or from a profile bound to one exact artifact. Thread: immutable.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "profile/profile.h"

namespace tenon::profile {

struct Implementation {
  std::string id;
  Graph graph;
  Loader loader;
  Loop loop;
};

// The profile's own name for it, else "<graph>-generated" for generated code, else the graph's
// name.
std::string implementation_id(const Profile& profile);

class ImplementationRegistry {
 public:
  ImplementationRegistry() = default;
  // A new registry; this one stays as it is. Errors: invalid (blank id, id twice).
  Result<ImplementationRegistry> extended(std::span<const Implementation> more) const;
  // Errors: unsupported (no such id), invalid (registered for another graph, loader or loop).
  Result<Implementation> find(const Profile& profile) const;

 private:
  std::vector<Implementation> list_;
};

// One entry per graph, named like it. The ordinary build has no generated code.
const ImplementationRegistry& builtin_implementations();

}  // namespace tenon::profile
