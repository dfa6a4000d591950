// RoPE descriptions that a config may get wrong. The right ones are compared with mlx-lm in
// tests/parity.
#include "graph/rope.h"

#include <gtest/gtest.h>

namespace tenon::graph {
namespace {

Result<ops::Rope> rope(const char* scaling) {
  return make_rope(
      {.dims = 32, .base = 10000, .traditional = false, .scaling = *parse_json(scaling)});
}

TEST(Rope, MistakesNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"spiral"})", "spiral"},
      {R"({"type":"linear"})", "factor"},
      {R"({"rope_type":"llama3","factor":"8"})", "factor"},
      {R"({"type":"yarn","factor":0})", "factor"},
      {R"({"type":"longrope","original_max_position_embeddings":64,"long_factor":[1,2]})",
       "long_factor"},
      {R"({"type":"longrope","long_factor":[1]})", "original_max_position_embeddings"},
      {R"({"type":"proportional","partial_rotary_factor":2})", "partial_rotary_factor"},
      {R"({"type":7})", "type"},
  };
  for (const auto& [scaling, field] : cases) {
    const auto made = rope(scaling);
    ASSERT_FALSE(made.ok()) << scaling;
    EXPECT_NE(made.error().message.find(field), std::string::npos) << made.error().message;
  }
  EXPECT_FALSE(make_rope({.dims = 7}).ok());
}

TEST(Rope, ProportionalKeepsUnrotatedPairsStill) {
  const auto made = rope(R"({"type":"proportional","partial_rotary_factor":0.5})");
  ASSERT_TRUE(made.ok());
  const float* freqs = made->freqs->data<float>();
  ASSERT_EQ(made->freqs->size(), 16u);
  EXPECT_FLOAT_EQ(freqs[1], std::pow(10000.0f, 2.0f / 32));  // exponents over the whole head
  EXPECT_TRUE(std::isinf(freqs[8]));
}

}  // namespace
}  // namespace tenon::graph
