// Which configs this build has generated (specialized) graph code for. Empty in the ordinary build;
// tests and builds with generated code hand in their own. Thread: immutable once handed over.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profile/profile.h"

namespace tenon::profile {

class GeneratedRegistry {
 public:
  GeneratedRegistry() = default;
  // Pairs of graph and config fingerprint.
  explicit GeneratedRegistry(std::vector<std::pair<Graph, std::string>> entries)
      : entries_(std::move(entries)) {}

  bool contains(Graph graph, std::string_view config_fingerprint) const {
    return std::ranges::any_of(entries_, [&](const auto& entry) {
      return entry.first == graph && entry.second == config_fingerprint;
    });
  }
  bool has_code_for(Graph graph) const {
    return std::ranges::any_of(entries_, [&](const auto& entry) { return entry.first == graph; });
  }

 private:
  std::vector<std::pair<Graph, std::string>> entries_;
};

}  // namespace tenon::profile
