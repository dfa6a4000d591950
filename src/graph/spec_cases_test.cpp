// Cases of the families specification 11 that can be shown without an oracle; each names its
// number. What a whole model computes is compared with mlx-lm in tests/parity.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "graph/families.h"
#include "graph/test_weights.h"

namespace tenon::graph {
namespace {

// Whole graphs with random weights. Which tensors a graph takes it says itself: it is built with
// kernels that only look, and each refusal names the next tensor or its shape.

using Shapes = std::map<std::string, std::vector<int64_t>>;
using Build =
    std::function<Result<std::unique_ptr<Model>>(checkpoint::Weights&, const BuildOptions&)>;

Build by_profile(const Json& config) {
  return [config](checkpoint::Weights& weights,
                  const BuildOptions& options) -> Result<std::unique_ptr<Model>> {
    const profile::Manifest manifest{"/models/plain", "safetensors", config, nullptr, nullptr};
    TENON_TRY(const profile::Resolved resolved, profile::resolve(manifest));
    return build(resolved, manifest, weights, options);
  };
}

std::string between(const std::string& text, const std::string& before, char behind) {
  const size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const size_t from = at + before.size();
  return text.substr(from, text.find(behind, from) - from);
}

Result<Shapes> shapes_of(const Build& make) {
  Shapes shapes;
  for (;;) {
    std::vector<WeightView> views;
    for (const auto& [name, shape] : shapes) {
      WeightView view;
      view.name = name;
      view.shape = shape;
      views.push_back(std::move(view));
    }
    checkpoint::Weights weights(std::move(views), "test");
    auto model = make(weights, {.kernels = ops::make_audit_kernels()});
    if (model.ok()) return shapes;
    const std::string& message = model.error().message;
    const std::string name = between(message, "tensor ", ' ');
    std::vector<int64_t> shape;
    for (const Json& dim : json("[" + between(message, "expected [", ']') + "]"))
      shape.push_back(dim.get<int64_t>());
    if (shape.empty()) shape = {1};
    if (name.empty() || (shapes.contains(name) && shapes[name] == shape))
      return std::move(model).error();
    shapes[name] = shape;
  }
}

// Weights that keep activations near one.
std::vector<WeightView> random_tensors(const Shapes& shapes) {
  std::vector<WeightView> views;
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  for (const auto& [name, shape] : shapes) {
    int64_t size = 1;
    for (int64_t dim : shape) size *= dim;
    const bool is_norm = name.find("norm") != std::string::npos;
    const float scale =
        shape.size() == 1 ? 0.1f : 1 / std::sqrt(static_cast<float>(size / shape[0]));
    std::vector<float> values;
    for (int64_t i = 0; i < size; ++i)
      values.push_back((is_norm ? 1.0f : 0.0f) + scale * normal(rng));
    views.push_back(view_of(name, shape, values));
  }
  return views;
}

Result<std::unique_ptr<Model>> build_stock(const Build& make, std::vector<WeightView> tensors) {
  checkpoint::Weights weights(std::move(tensors), "test");
  return make(weights, {.kernels = *ops::make_kernels({.name = "mlx"})});
}

struct Outputs {
  mx::array hidden, logits;
};
Outputs run(const Build& make, std::vector<WeightView> tensors, mx::Dtype dtype) {
  checkpoint::Weights weights(std::move(tensors), "test");
  BuildOptions options{.kernels = *ops::make_kernels({.name = "mlx", .dtype = dtype}),
                       .dtype = dtype};
  options.kv.dtype = dtype;
  auto model = make(weights, options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(weights.finish().ok());
  (*model)->caches().open(0);
  std::optional<Outputs> out;
  for (const ops::RowSlice& row : {ops::RowSlice{0, 0, 21, 0}, ops::RowSlice{0, 0, 1, 21}}) {
    const mx::array ids = mx::arange(row.offset, row.offset + row.len);
    const mx::array hidden = (*model)->hidden(ids, std::span(&row, 1), nullptr);
    out = Outputs{hidden, (*model)->logits(hidden)};
    std::vector<mx::array> all = (*model)->caches().state();
    all.insert(all.end(), {out->hidden, out->logits});
    mx::eval(all);
    Handover::returned();
  }
  return *out;
}

Json small(const char* type, std::string_view more = "{}") {
  Json config{{"model_type", type},
              {"hidden_size", 64},
              {"num_hidden_layers", 2},
              {"intermediate_size", 96},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"head_dim", 16},
              {"rms_norm_eps", 1e-5},
              {"vocab_size", 40},
              {"rope_theta", 10000.0},
              {"max_position_embeddings", 2048}};
  config.update(json(more));
  return config;
}

const char* const kQwen35 = R"({"num_hidden_layers":8,"full_attention_interval":4,
    "linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":32,
    "linear_value_head_dim":16,"tie_word_embeddings":true})";
const char* const kGemma4 = R"({"num_hidden_layers":6,"global_head_dim":32,
    "num_kv_shared_layers":2,"vocab_size_per_layer_input":40,"hidden_size_per_layer_input":8,
    "sliding_window":16,"sliding_window_pattern":3,"final_logit_softcapping":5.0})";

// Case 8: no scalar widens what it meets; one that did would show here, as all of a graph's sums
// end in its hidden state.
TEST(StockFamilies, ActivationsKeepTheirDtype) {
  const Json configs[] = {
      small("llama", R"({"attention_bias":true,"mlp_bias":true,"rope_scaling":
             {"type":"yarn","factor":4.0,"mscale":1.0,"mscale_all_dim":0.5}})"),
      small("llama", R"({"layer_types":["sliding_attention","full_attention"],
             "sliding_window":8,"rope_scaling":{"type":"linear","factor":2.0}})"),
      small("gemma"),
      small("gemma2"),
      small("gemma3_text", R"({"sliding_window":8,"sliding_window_pattern":2})"),
      small("phi3", R"({"partial_rotary_factor":0.5,"original_max_position_embeddings":64,
             "rope_scaling":{"type":"su","long_factor":[1.0,2.0,3.0,4.0],
             "short_factor":[1,1,1,1]}})"),
      small("olmo2"),
      small("glm4", R"({"partial_rotary_factor":0.5,"attention_bias":true})"),
      small("granite", R"({"logits_scaling":3.0,"attention_multiplier":0.1,
             "embedding_multiplier":2.5,"residual_multiplier":0.7})"),
      small("minicpm", R"({"dim_model_base":32,"scale_depth":1.4,"scale_emb":3.0})"),
      small("starcoder2"),
      small("smollm3"),
      small("qwen2"),
      small("qwen3", R"({"tie_word_embeddings":false})"),
      small("qwen3_5", kQwen35),
      small("gemma4_text", kGemma4)};
  for (const Json& config : configs) {
    const Build make = by_profile(config);
    const auto shapes = shapes_of(make);
    ASSERT_TRUE(shapes.ok()) << config["model_type"] << shapes.error().message;
    for (const mx::Dtype dtype : {mx::bfloat16, mx::float16, mx::float32}) {
      const Outputs out = run(make, random_tensors(*shapes), dtype);
      EXPECT_EQ(out.hidden.dtype(), dtype) << config["model_type"];
      EXPECT_EQ(out.logits.dtype(), dtype) << config["model_type"];
      float largest = 0;
      for (const float x : floats_of(out.logits)) {
        ASSERT_TRUE(std::isfinite(x)) << config["model_type"];
        largest = std::max(largest, std::abs(x));
      }
      EXPECT_GT(largest, 0.05f) << config["model_type"];
    }
  }
}

// Case 7: MiniCPM5 is a llama whose heads together are wider than its hidden state. Its graph goes
// by the config, so a small one shows it.
TEST(StockFamilies, MiniCpm5IsALlamaOfItsOwnHeadWidth) {
  const Json config = small("llama", R"({"head_dim":32,"tie_word_embeddings":false})");
  const auto with = [&](FamilyBuilder build_family) -> Build {
    return [=](checkpoint::Weights& weights, const BuildOptions& options) {
      profile::Resolved resolved;
      resolved.model_type = "llama";
      const profile::Manifest manifest{"/models/plain", "safetensors", config, nullptr, nullptr};
      return build_family(resolved, manifest, weights, options);
    };
  };
  const auto shapes = shapes_of(with(build_minicpm5));
  ASSERT_TRUE(shapes.ok()) << shapes.error().message;
  EXPECT_EQ(shapes->at("model.layers.0.self_attn.q_proj.weight"), (std::vector<int64_t>{128, 64}));
  EXPECT_EQ(shapes->at("model.layers.0.self_attn.o_proj.weight"), (std::vector<int64_t>{64, 128}));
  EXPECT_EQ(shapes->at("lm_head.weight"), (std::vector<int64_t>{40, 64}));
  EXPECT_FALSE(shapes->contains("model.layers.0.self_attn.q_proj.bias"));
  const Outputs own = run(with(build_minicpm5), random_tensors(*shapes), mx::float32);
  const Outputs llama = run(with(build_universal_dense), random_tensors(*shapes), mx::float32);
  EXPECT_EQ(floats_of(own.logits), floats_of(llama.logits));
}

// Case 5: which layers attend, by the tensors they take and the caches they have.
TEST(Families, Qwen35AttendsInEveryIntervalThLayer) {
  for (int interval : {4, 3}) {
    Json config = small("qwen3_5", kQwen35);
    config["full_attention_interval"] = interval;
    const Build make = by_profile(config);
    const auto shapes = shapes_of(make);
    ASSERT_TRUE(shapes.ok()) << shapes.error().message;
    const auto model = build_stock(make, random_tensors(*shapes));
    ASSERT_TRUE(model.ok()) << model.error().message;
    cache::CacheSet& caches = (*model)->caches();
    ASSERT_EQ(caches.num_layers(), 8);
    for (int i = 0; i < 8; ++i) {
      const bool attends = interval == 4 ? i == 3 || i == 7 : i == 2 || i == 5;
      const std::string at = fmt::format("model.layers.{}.", i);
      EXPECT_EQ(shapes->contains(at + "self_attn.q_proj.weight"), attends) << interval << ' ' << i;
      EXPECT_EQ(shapes->contains(at + "linear_attn.A_log"), !attends) << interval << ' ' << i;
      EXPECT_EQ(caches.layer(i).signature(), attends ? "kv:plain" : "ssm");
    }
    // A query and its gate for each head.
    const std::string first = fmt::format("model.layers.{}.self_attn.q_proj.weight", interval - 1);
    EXPECT_EQ(shapes->at(first), (std::vector<int64_t>{2 * 4 * 16, 64}));
  }
}

// Case 5: value heads that are no multiple of the key heads.
TEST(Families, Qwen35RefusesAWrongHeadRatio) {
  Json config = small("qwen3_5", kQwen35);
  config["linear_num_value_heads"] = 3;
  const auto made = shapes_of(by_profile(config));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::invalid);
  for (const char* part : {"linear_num_value_heads 3", "linear_num_key_heads 2"})
    EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
}

// Case 5, the guard: norms that were left as distances from one beside converted convolutions.
TEST(Families, Qwen35RefusesShiftedNormsOfAConvertedFile) {
  const Build make = by_profile(small("qwen3_5", kQwen35));
  const auto shapes = shapes_of(make);
  ASSERT_TRUE(shapes.ok()) << shapes.error().message;
  const auto attempt = [&](float norm_weight) {
    std::vector<WeightView> tensors = random_tensors(*shapes);
    for (WeightView& view : tensors)
      if (view.name == "model.norm.weight")
        view = view_of(view.name, view.shape, std::vector<float>(64, norm_weight));
    return build_stock(make, std::move(tensors));
  };
  EXPECT_TRUE(attempt(0.3f).ok());
  EXPECT_TRUE(attempt(-0.3f).ok()) << "a mean of absolute values";
  const auto refused = attempt(0.2f);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("model.norm.weight"), std::string::npos);
}

// Case 2: layers that share keys have no cache, nor the tensors of one; they are twice as wide.
TEST(Families, Gemma4SharedLayersOwnNothing) {
  const Build make = by_profile(small("gemma4_text", kGemma4));
  const auto shapes = shapes_of(make);
  ASSERT_TRUE(shapes.ok()) << shapes.error().message;
  const auto model = build_stock(make, random_tensors(*shapes));
  ASSERT_TRUE(model.ok()) << model.error().message;
  cache::CacheSet& caches = (*model)->caches();
  ASSERT_EQ(caches.num_layers(), 4);
  for (int i = 0; i < 6; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    for (const char* name : {"k_proj", "v_proj", "k_norm"})
      EXPECT_EQ(shapes->contains(at + "self_attn." + name + ".weight"), i < 4) << at << name;
    const bool full = i % 3 == 2;
    EXPECT_EQ(shapes->at(at + "self_attn.q_norm.weight"), (std::vector<int64_t>{full ? 32 : 16}));
    EXPECT_EQ(shapes->at(at + "mlp.up_proj.weight"), (std::vector<int64_t>{i < 4 ? 96 : 192, 64}));
    const char* signature = full ? "kv:plain" : "kv:rotating-plain";
    EXPECT_TRUE(i >= 4 || caches.layer(i).signature() == signature) << i;
  }
}

}  // namespace
}  // namespace tenon::graph
