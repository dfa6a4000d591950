// Cases 3 and 4 of the families specification 11: each type of RoPE against its written definition.
// Whole models with them are compared with mlx-lm in tests/parity.
#include <algorithm>
#include <cmath>

#include "graph/rope.h"
#include "graph/test_weights.h"

namespace tenon::graph {
namespace {

namespace mx = mlx::core;

constexpr int kDim = 64;

// A head of ones that goes through a matrix which changes nothing, and is turned.
std::vector<float> turned(const std::string& family, const RopeRequest& request, int position) {
  const auto kernels = *ops::make_kernels({.name = family});
  std::vector<float> same(kDim * kDim);
  for (int i = 0; i < kDim; ++i) same[i * kDim + i] = 1;
  LinearSource source;
  source.weight = view_of("same", {kDim, kDim}, same);
  ops::QkvProjection p;
  p.q = p.k = p.v = kernels->load_matrix(source, mx::float32);
  p.num_heads = p.num_kv_heads = 1, p.head_dim = kDim;
  auto rope = make_rope(request);
  EXPECT_TRUE(rope.ok()) << rope.error().message;
  EXPECT_TRUE(kernels->prepare(*rope).ok());
  const ops::RowSlice row{0, 0, 1, position};
  const ops::Qkv qkv = kernels->project_qkv(mx::ones({1, kDim}), p, std::span(&row, 1), &*rope);
  EXPECT_EQ(floats_of(qkv.q), floats_of(*qkv.k));
  return floats_of(qkv.q);
}

// Ones turned pair by pair, (i, i + half); dimensions behind them stay.
std::vector<double> ones_turned(const std::vector<double>& angles) {
  std::vector<double> out(kDim, 1);
  const size_t half = angles.size();
  for (size_t i = 0; i < half; ++i) {
    out[i] = std::cos(angles[i]) - std::sin(angles[i]);
    out[half + i] = std::sin(angles[i]) + std::cos(angles[i]);
  }
  return out;
}

double distance(const std::vector<float>& got, const std::vector<double>& want) {
  double off = 0;
  for (size_t i = 0; i < want.size(); ++i) off = std::max(off, std::abs(got[i] - want[i]));
  return off;
}

class Turned : public ::testing::TestWithParam<std::string> {};

// Case 3: proportional RoPE pairs over the whole head and turns the first pairs by exponents over
// the whole head; partial RoPE does both over the part.
TEST_P(Turned, ProportionalAndPartialAtFarPositions) {
  constexpr double kBase = 1e6;
  constexpr int kPart = kDim / 4;
  const RopeRequest proportional{
      kDim, kBase, false, json(R"({"rope_type":"proportional","partial_rotary_factor":0.25})"),
      1 << 20};
  const RopeRequest partial{kPart, kBase, false, {}, 1 << 20};
  for (int position : {0, 1, 511, 131071}) {
    std::vector<double> whole(kDim / 2, 0.0), part;
    for (int i = 0; i < kPart / 2; ++i) {
      whole[i] = position * std::pow(kBase, -2.0 * i / kDim);
      part.push_back(position * std::pow(kBase, -2.0 * i / kPart));
    }
    // An angle is a float32 product.
    const double near = 2e-4 + 5e-7 * position;
    const auto got = turned(GetParam(), proportional, position);
    EXPECT_LT(distance(got, ones_turned(whole)), near) << position;
    EXPECT_LT(distance(turned(GetParam(), partial, position), ones_turned(part)), near) << position;
    EXPECT_TRUE(position == 0 || distance(got, ones_turned(part)) > 0.3) << position;
    for (int i = kPart / 2; i < kDim / 2; ++i) {
      EXPECT_NEAR(got[i], 1, 2e-4) << i;
      EXPECT_NEAR(got[kDim / 2 + i], 1, 2e-4) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Turned, ::testing::Values("mlx", "tenon"),
                         [](const auto& family) -> std::string {
                           return family.param == "mlx" ? "stock" : family.param;
                         });

std::vector<double> plain_waves(double base, int dims) {
  std::vector<double> waves;
  for (int i = 0; i < dims / 2; ++i) waves.push_back(std::pow(base, 2.0 * i / dims));
  return waves;
}

void expect_waves(const RopeRequest& request, const std::vector<double>& want, double input_scale) {
  const auto rope = make_rope(request);
  ASSERT_TRUE(rope.ok()) << rope.error().message;
  EXPECT_FALSE(rope->base.has_value());
  ASSERT_TRUE(rope->freqs.has_value());
  const std::vector<float> got = floats_of(*rope->freqs);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double off = std::isinf(want[i]) ? std::isinf(got[i]) - 1 : got[i] / want[i] - 1;
    EXPECT_NEAR(off, 0, 2e-5) << request.scaling.dump() << ' ' << i;
  }
  EXPECT_NEAR(rope->input_scale, input_scale, 1e-6) << request.scaling.dump();
}

// Case 4: llama3 stretches long waves, keeps short ones and blends in between.
TEST(Rope, WavesOfLlama3) {
  const Json scaling = json(R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,
                                "high_freq_factor":4,"original_max_position_embeddings":8192})");
  const Json defaults = json(R"({"rope_type":"llama3","factor":8})");
  std::vector<double> want;
  int kept = 0, stretched = 0;
  for (double f : plain_waves(500000, 128)) {
    const double wave = 2 * M_PI * f, smooth = (8192 / wave - 1) / (4 - 1);
    kept += wave <= 8192.0 / 4;
    stretched += wave >= 8192.0;
    want.push_back(wave > 8192 ? f * 8 : wave > 8192.0 / 4 ? f / ((1 - smooth) / 8 + smooth) : f);
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(stretched, 0);
  EXPECT_LT(kept + stretched, 64);
  expect_waves({128, 500000, false, scaling, 131072}, want, 1);
  expect_waves({128, 500000, false, defaults, 131072}, want, 1);
}

// Case 4: yarn under all its names, with and without scales.
TEST(Rope, WavesOfYarn) {
  constexpr int kDims = 128;
  constexpr double kBase = 10000, kFactor = 40, kOld = 4096;
  const auto at = [&](double turns) {
    return kDims * std::log(kOld / (turns * 2 * M_PI)) / (2 * std::log(kBase));
  };
  const double low = std::max(std::floor(at(32)), 0.0),
               high = std::min(std::ceil(at(1)), kDims - 1.0);
  std::vector<double> want;
  for (int i = 0; i < kDims / 2; ++i) {
    const double extra = std::pow(kBase, 2.0 * i / kDims), inter = kFactor * extra;
    const double m = 1 - std::clamp((i - low) / (high - low), 0.0, 1.0);
    want.push_back(inter * extra / (inter * m + extra * (1 - m)));
  }
  EXPECT_NEAR(want.front(), 1, 1e-9);
  const auto mscale = [&](double m) { return 0.1 * m * std::log(kFactor) + 1; };
  for (const char* name : {"yarn", "deepseek_yarn", "telechat3-yarn"}) {
    Json scaling{{"type", name}, {"factor", kFactor}};
    expect_waves({kDims, kBase, false, scaling, 163840}, want, mscale(1));
    scaling["original_max_position_embeddings"] = kOld;
    scaling["mscale"] = 1.0;
    scaling["mscale_all_dim"] = 1.0;
    expect_waves({kDims, kBase, false, scaling, 163840}, want, 1);
    scaling["mscale_all_dim"] = 0.5;
    expect_waves({kDims, kBase, false, scaling, 163840}, want, mscale(1) / mscale(0.5));
  }
  // A factor of one scales nothing.
  expect_waves({kDims, kBase, false, Json{{"type", "yarn"}, {"factor", 1.0}}, 163840},
               plain_waves(kBase, kDims), 1);
}

// Case 4: longrope takes the long factors at every length.
TEST(Rope, WavesOfLongrope) {
  constexpr int kDims = 96;
  Json scaling{{"type", "longrope"}, {"original_max_position_embeddings", 4096}};
  std::vector<double> want = plain_waves(10000, kDims);
  for (int i = 0; i < kDims / 2; ++i) {
    scaling["long_factor"].push_back(1.0 + 0.25 * i);
    scaling["short_factor"].push_back(1.0);
    want[i] *= 1.0 + 0.25 * i;
  }
  const double ratio = 131072.0 / 4096;
  expect_waves({kDims, 10000, false, scaling, 131072}, want,
               std::sqrt(1 + std::log(ratio) / std::log(4096.0)));
  expect_waves({kDims, 10000, false, scaling, 4096}, want, 1);
  scaling["long_mscale"] = 1.25;
  expect_waves({kDims, 10000, false, scaling, 131072}, want,
               std::sqrt(1 + std::log(ratio) / std::log(4096.0)));
}

// Case 4: the types that have a base, and proportional with a factor.
TEST(Rope, WavesOfTheOtherTypes) {
  for (const char* text : {"null", "{}", R"({"type":"default"})", R"({"rope_type":"default"})",
                           R"({"type":"mrope","mrope_section":[11,11,10]})"}) {
    const auto rope = make_rope({64, 1e5, true, json(text), 4096});
    ASSERT_TRUE(rope.ok()) << text << rope.error().message;
    EXPECT_EQ(rope->base, 1e5f);
    EXPECT_EQ(rope->scale, 1.0f);
    EXPECT_TRUE(rope->traditional);
    EXPECT_EQ(rope->dynamic_max_positions, 0);
    EXPECT_FALSE(rope->freqs.has_value());
  }
  const auto linear = make_rope({64, 1e4, false, json(R"({"type":"linear","factor":8})"), 4096});
  EXPECT_EQ(linear->scale, 0.125f);
  EXPECT_EQ(linear->base, 1e4f);
  const auto dynamic = make_rope({64, 1e4, false, json(R"({"type":"dynamic","factor":2})"), 4096});
  EXPECT_EQ(dynamic->dynamic_max_positions, 4096);
  EXPECT_EQ(dynamic->dynamic_factor, 2.0f);
  EXPECT_EQ(dynamic->base, 1e4f);
  std::vector<double> want(32, INFINITY);
  for (int i = 0; i < 12; ++i) want[i] = 4 * std::pow(1e4, 2.0 * i / 64);
  expect_waves({64, 1e4, false,
                json(R"({"type":"proportional","partial_rotary_factor":0.38,"factor":4})"), 4096},
               want, 1);
  // "type" counts before "rope_type".
  const auto both = make_rope(
      {64, 1e4, false, json(R"({"type":"linear","rope_type":"llama3","factor":2})"), 4096});
  EXPECT_EQ(both->scale, 0.5f);
}

// Case 4: the oracle refuses other numbers of sections.
TEST(Rope, MropeHasThreeSections) {
  for (const char* sections : {"[16,16]", "[8,8,8,8]", "[]"}) {
    const auto rope = make_rope(
        {64, 1e4, false, json(std::string(R"({"type":"mrope","mrope_section":)") + sections + "}"),
         4096});
    ASSERT_FALSE(rope.ok()) << sections;
    EXPECT_NE(rope.error().message.find("mrope_section"), std::string::npos);
  }
}

}  // namespace
}  // namespace tenon::graph
