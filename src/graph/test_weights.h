// For tests of graph: configs as text, weights as numbers.
#pragma once
#include <gtest/gtest.h>

#include <cstring>

#include "base/handover.h"
#include "graph/graph.h"

namespace tenon::graph {

inline Json json(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : Json();
}

inline WeightView view_of(std::string name, std::vector<int64_t> shape,
                          const std::vector<float>& values) {
  auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(float));
  std::memcpy(bytes->data(), values.data(), bytes->size());
  return {*bytes, std::move(shape), Format::f32, bytes, std::move(name)};
}

inline std::vector<float> floats_of(const mx::array& x) {
  const mx::array packed = mx::contiguous(mx::astype(x, mx::float32));
  mx::eval(packed);
  Handover::returned();
  return {packed.data<float>(), packed.data<float>() + packed.size()};
}

}  // namespace tenon::graph
