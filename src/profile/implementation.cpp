#include "profile/implementation.h"

#include <algorithm>

#include "base/check.h"
#include "profile/tables.h"

namespace tenon::profile {

std::string implementation_id(const Profile& profile) {
  if (profile.execution.implementation) return *profile.execution.implementation;
  const std::string graph = graph_name(profile.execution.graph);
  return profile.execution.specialization == Specialization::generated ? graph + "-generated"
                                                                       : graph;
}

Result<ImplementationRegistry> ImplementationRegistry::extended(
    std::span<const Implementation> more) const {
  ImplementationRegistry out = *this;
  for (const Implementation& each : more) {
    if (each.id.find_first_not_of(" \t\n\v\f\r") == std::string::npos)
      return invalid("an implementation id must not be blank").because("profile.E-IMPLID");
    if (std::ranges::find(out.list_, each.id, &Implementation::id) != out.list_.end())
      return invalid("implementation '{}' is registered twice; choose another id", each.id)
          .because("profile.E-IMPLDUP");
    out.list_.push_back(each);
  }
  return out;
}

Result<Implementation> ImplementationRegistry::find(const Profile& profile) const {
  const std::string id = implementation_id(profile);
  const auto it = std::ranges::find(list_, id, &Implementation::id);
  if (it == list_.end())
    return unsupported(
               "model profile '{}' needs implementation '{}', which this build does not have; "
               "refusing to fall back. Use a build that registers it",
               profile.id, id)
        .because("profile.E-IMPLUNKNOWN");
  const Composition& e = profile.execution;
  if (it->graph != e.graph || it->loader != e.loader || it->loop != e.loop)
    return invalid(
               "implementation '{}' is registered for {}/{}/{}, but model profile '{}' is "
               "{}/{}/{}; "
               "name an implementation of the same graph, loader and loop",
               id, graph_name(it->graph), loader_name(it->loader), loop_name(it->loop), profile.id,
               graph_name(e.graph), loader_name(e.loader), loop_name(e.loop))
        .because("profile.E-IMPLCOMP");
  return *it;
}

const ImplementationRegistry& builtin_implementations() {
  static const ImplementationRegistry registry = [] {
    std::vector<Implementation> list;
    for (const Profile& family : family_profiles())
      if (family.execution.specialization != Specialization::generated)
        list.push_back({graph_name(family.execution.graph), family.execution.graph,
                        family.execution.loader, family.execution.loop});
    auto made = ImplementationRegistry().extended(list);
    CHECK(made.ok(), "{}", made.error().message);
    return *made;
  }();
  return registry;
}

}  // namespace tenon::profile
