#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "checkpoint/test_files.h"

namespace tenon::checkpoint {
namespace {

WeightView view(std::string name, std::vector<int64_t> shape, Format format = Format::f16) {
  WeightView v;
  v.name = std::move(name);
  v.shape = std::move(shape);
  v.format = format;
  return v;
}

// Affine [8, 64] at 4 bits, group 32, under `path`.
std::vector<WeightView> affine(const std::string& path) {
  return {view(path + ".weight", {8, 8}, Format::u32), view(path + ".scales", {8, 2}),
          view(path + ".biases", {8, 2})};
}

Json json(const char* text) { return Json::parse(text); }

TEST(Weights, EachTensorIsTakenOnce) {
  Weights w({view("b", {2}), view("a", {3, 4})}, "dir");
  EXPECT_TRUE(w.has("a"));
  EXPECT_FALSE(w.has("c"));
  EXPECT_EQ(w.find("a")->shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(w.names(), (std::vector<std::string>{"a", "b"}));
  expect_error(w.take("a", {4, 3}), Code::corrupt, {"dir", "a", "[3, 4]", "[4, 3]"}, "shape");
  EXPECT_TRUE(w.take("a", {3, 4}).ok());
  expect_error(w.take("a"), Code::corrupt, {"dir", "a", "twice"}, "twice");
  expect_error(w.take("c"), Code::not_found, {"dir", "c"}, "absent");
  expect_error(w.finish(), Code::corrupt, {"dir", "1 of the tensors: b"}, "left");
  EXPECT_TRUE(w.take("b").ok());
  EXPECT_TRUE(w.finish().ok());
}

TEST(Weights, FinishListsTenAndDropForgives) {
  std::vector<WeightView> tensors;
  for (int i = 10; i < 22; ++i) tensors.push_back(view(fmt::format("rotary.{}", i), {1}));
  Weights w(std::move(tensors), "dir");
  expect_error(w.finish(), Code::corrupt,
               {"12 of the tensors", "rotary.10", "rotary.19 and 2 more"}, "list");
  w.drop("rotary");
  EXPECT_TRUE(w.finish().ok());
}

TEST(Weights, DenseAndBlockLinear) {
  Weights w({view("p.weight", {8, 64}, Format::q4_k), view("p.bias", {8})}, "dir");
  const auto linear = w.take_linear("p", 8, 64, true);
  ASSERT_TRUE(linear.ok()) << linear.error().message;
  EXPECT_EQ(linear->bits, 0);
  EXPECT_TRUE(linear->scales.empty());
  EXPECT_EQ(linear->bias.size(), 1u);
  EXPECT_TRUE(w.finish().ok());
}

TEST(Weights, AffineWithDefaultsAndOverrides) {
  std::vector<WeightView> tensors = affine("a");
  tensors.push_back(view("b.weight", {8, 16}, Format::u32));  // 8 bits, inherits the group
  tensors.push_back(view("b.scales", {8, 2}));
  tensors.push_back(view("b.biases", {8, 2}));
  tensors.push_back(view("c.weight", {8, 64}));
  tensors.push_back(view("d.weight", {8, 12}, Format::u32));  // 6 bits: 64 * 6 / 32
  tensors.push_back(view("d.scales", {8, 1}));
  tensors.push_back(view("d.biases", {8, 1}));
  Weights w(std::move(tensors), "dir");
  w.set_quantization(json(R"({"bits":4,"group_size":32,"mode":"affine","b":{"bits":8},"c":false,
                              "d":{"bits":6,"group_size":64},"a":true})"));
  const auto a = w.take_linear("a", 8, 64), b = w.take_linear("b", 8, 64),
             c = w.take_linear("c", 8, 64), d = w.take_linear("d", 8, 64);
  for (const auto* r : {&a, &b, &c, &d}) ASSERT_TRUE(r->ok()) << r->error().message;
  EXPECT_EQ(a->bits, 4);
  EXPECT_EQ(a->group_size, 32);
  EXPECT_EQ(a->scales.size() + a->biases.size(), 2u);
  EXPECT_EQ(b->bits, 8);
  EXPECT_EQ(b->group_size, 32);
  EXPECT_EQ(c->bits, 0);
  EXPECT_EQ(d->bits, 6);
  EXPECT_EQ(d->group_size, 64);
  EXPECT_TRUE(w.finish().ok());
}

// The other modes: u8 scales, no biases, bits and groups of their own; a module may change the
// mode.
// A tensor of bytes that count up, so that a slice says where it is from.
WeightView counted(std::string name, std::vector<int64_t> shape) {
  WeightView v = view(std::move(name), std::move(shape), Format::u8);
  int64_t size = 1;
  for (int64_t dim : v.shape) size *= dim;
  auto bytes = std::make_shared<std::vector<std::byte>>(size);
  for (int64_t i = 0; i < size; ++i) (*bytes)[i] = static_cast<std::byte>(i);
  v.bytes = *bytes;
  v.keep = bytes;
  return v;
}

TEST(Weights, RowsAreViewsOfTheSameBytes) {
  const WeightView whole = counted("m", {6, 2, 5});
  const WeightView part = rows_of(whole, 2, 5);
  EXPECT_EQ(part.shape, (std::vector<int64_t>{3, 2, 5}));
  EXPECT_EQ(part.bytes.data(), whole.bytes.data() + 20);
  EXPECT_EQ(part.bytes.size(), 30u);
  LinearSource matrix{whole, {counted("s", {6, 4})}, {}, {counted("b", {6})}};
  const LinearSource half = rows_of(matrix, 3, 6);
  EXPECT_EQ(std::to_integer<int>(half.weight.bytes[0]), 30);
  EXPECT_EQ(std::to_integer<int>(half.scales[0].bytes[0]), 12);
  EXPECT_EQ(std::to_integer<int>(half.bias[0].bytes[0]), 3);
}

TEST(Weights, StackedExperts) {
  std::vector<WeightView> tensors{view("e.weight", {3, 8, 8}, Format::u32),
                                  view("e.scales", {3, 8, 2}), view("e.biases", {3, 8, 2}),
                                  view("f.weight", {3, 8, 64})};
  Weights w(std::move(tensors), "dir");
  w.set_quantization(json(R"({"bits":4,"group_size":32})"));
  const auto packed = w.take_experts("e", 3, 8, 64);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  ASSERT_EQ(packed->size(), 3u);
  EXPECT_EQ((*packed)[2].weight.shape, (std::vector<int64_t>{8, 8}));
  EXPECT_EQ((*packed)[2].scales[0].shape, (std::vector<int64_t>{8, 2}));
  EXPECT_EQ((*packed)[0].bits, 4);
  expect_error(w.take_experts("f", 4, 8, 64), Code::corrupt, {"f.weight", "[3, 8, 64]"}, "count");
  EXPECT_TRUE(w.take_experts("f", 3, 8, 64).ok());
  expect_error(w.take_experts("g", 3, 8, 64), Code::not_found, {"g.weight"}, "absent");
}

TEST(Weights, RenamedModulesKeepTheirQuantization) {
  std::vector<WeightView> tensors = affine("old.a");
  tensors.push_back(view("other", {2}));
  Weights w(std::move(tensors), "dir");
  w.set_quantization(json(R"({"bits":8,"group_size":64,"old.a":{"bits":4,"group_size":32}})"));
  ASSERT_TRUE(w.rename_prefix("old.", "").ok());
  EXPECT_FALSE(w.has("old.a.weight"));
  const auto a = w.take_linear("a", 8, 64);
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_EQ(a->bits, 4);
}

TEST(Weights, TwoNamesForOneTensorAreRefused) {
  Weights w({view("x.norm", {2}), view("old.x.norm", {2})}, "dir");
  expect_error(w.rename_prefix("old.", ""), Code::corrupt, {"dir", "x.norm", "old.x.norm"},
               "clash");
}

TEST(Weights, ModesWithoutBiases) {
  Weights w(
      {view("a.weight", {8, 8}, Format::u32), view("a.scales", {8, 2}, Format::u8),
       view("b.weight", {8, 16}, Format::u32), view("b.scales", {8, 2}, Format::u8),
       view("c.weight", {8, 8}, Format::u32), view("c.scales", {8, 4}, Format::u8),
       view("d.weight", {8, 16}, Format::u32), view("d.scales", {8, 1}), view("d.biases", {8, 1})},
      "dir");
  w.set_quantization(json(R"({"bits":4,"group_size":32,"mode":"mxfp4","b":{"mode":"mxfp8"},
                              "c":{"mode":"nvfp4","bits":4,"group_size":16},
                              "d":{"bits":8,"group_size":64}})"));
  const QuantMode modes[] = {QuantMode::mxfp4, QuantMode::mxfp8, QuantMode::nvfp4,
                             QuantMode::affine};
  const int bits[] = {4, 8, 4, 8}, groups[] = {32, 32, 16, 64};
  for (int i = 0; i < 4; ++i) {
    const auto linear = w.take_linear(std::string(1, static_cast<char>('a' + i)), 8, 64);
    ASSERT_TRUE(linear.ok()) << linear.error().message;
    EXPECT_EQ(linear->mode, modes[i]);
    EXPECT_EQ(linear->bits, bits[i]);
    EXPECT_EQ(linear->group_size, groups[i]);
    EXPECT_EQ(linear->biases.size(), i == 3 ? 1u : 0u);
  }
  EXPECT_TRUE(w.finish().ok());
}

struct Bad {
  const char* what;
  std::vector<WeightView> tensors;
  const char* quantization;
  Code code;
  std::vector<std::string> message;
};

TEST(Weights, BadLinearsAreNamed) {
  const char* q4 = R"({"bits":4,"group_size":32})";
  const auto with = [](size_t i, WeightView v) {
    auto t = affine("p");
    t[i] = std::move(v);
    return t;
  };
  auto no_biases = affine("p");
  no_biases.pop_back();
  const Bad table[] = {
      {"no quantization", affine("p"), "null", Code::corrupt, {"p.scales", "not quantized"}},
      {"switched off",
       affine("p"),
       R"({"bits":4,"group_size":32,"p":false})",
       Code::corrupt,
       {"p.scales"}},
      {"unknown mode",
       affine("p"),
       R"({"bits":4,"group_size":32,"p":{"mode":"int4"}})",
       Code::unsupported,
       {"p.mode", "int4", "mxfp4"}},
      {"another mode's scales",
       affine("p"),
       R"({"bits":4,"group_size":32,"p":{"mode":"mxfp4"}})",
       Code::corrupt,
       {"p.scales", "u8", "mxfp4"}},
      {"another mode's bits",
       affine("p"),
       R"({"bits":4,"group_size":32,"p":{"mode":"mxfp8","bits":4}})",
       Code::unsupported,
       {"p.bits", "must be 8"}},
      {"affine under another mode inherits nothing",
       affine("p"),
       R"({"mode":"mxfp4","p":{"bits":4}})",
       Code::corrupt,
       {"p.group_size", "missing"}},
      {"global scale",
       {view("p.weight", {8, 8}, Format::u32), view("p.scales", {8, 4}, Format::u8),
        view("p.global_scale", {1}, Format::f32)},
       R"({"mode":"nvfp4"})",
       Code::unsupported,
       {"p.global_scale"}},
      {"bits 7",
       affine("p"),
       R"({"bits":7,"group_size":32})",
       Code::unsupported,
       {"quantization.bits", "7"}},
      {"bits as text",
       affine("p"),
       R"({"bits":"4","group_size":32})",
       Code::unsupported,
       {"quantization.bits"}},
      {"no bits", affine("p"), R"({"group_size":32})", Code::corrupt, {"quantization.bits"}},
      {"group 16",
       affine("p"),
       R"({"bits":4,"group_size":16})",
       Code::unsupported,
       {"group_size", "16"}},
      {"group over the row",
       affine("p"),
       R"({"bits":4,"group_size":128})",
       Code::corrupt,
       {"p", "128"}},
      {"override is a number",
       affine("p"),
       R"({"bits":4,"group_size":32,"p":4})",
       Code::corrupt,
       {"quantization.p"}},
      {"weight shape",
       with(0, view("p.weight", {8, 16}, Format::u32)),
       q4,
       Code::corrupt,
       {"p.weight", "[8, 16]", "[8, 8]"}},
      {"weight format",
       with(0, view("p.weight", {8, 8}, Format::i32)),
       q4,
       Code::corrupt,
       {"p.weight", "i32"}},
      {"scales shape",
       with(1, view("p.scales", {8, 1})),
       q4,
       Code::corrupt,
       {"p.scales", "[8, 1]", "[8, 2]"}},
      {"scales format",
       with(1, view("p.scales", {8, 2}, Format::u8)),
       q4,
       Code::corrupt,
       {"p.scales", "u8"}},
      {"biases format",
       with(2, view("p.biases", {8, 2}, Format::bf16)),
       q4,
       Code::corrupt,
       {"p.scales", "p.biases"}},
      {"no biases", no_biases, q4, Code::not_found, {"p.biases"}},
      {"no scales",
       {view("p.weight", {8, 8}, Format::u32)},
       q4,
       Code::corrupt,
       {"p.weight", "p.scales is missing"}},
      {"no weight", {}, "null", Code::not_found, {"p.weight"}},
      {"dense shape",
       {view("p.weight", {8, 32})},
       "null",
       Code::corrupt,
       {"p.weight", "[8, 32]", "[8, 64]"}},
  };
  for (const Bad& bad : table) {
    Weights w(bad.tensors, "dir");
    w.set_quantization(json(bad.quantization));
    auto message = bad.message;
    message.push_back("dir");
    expect_error(w.take_linear("p", 8, 64), bad.code, message, bad.what);
  }
  Weights w({view("p.weight", {8, 64})}, "dir");
  expect_error(w.take_linear("p", 8, 64, true), Code::not_found, {"p.bias"}, "bias");
}

TEST(Quantization, OnlyOfMlx) {
  EXPECT_TRUE(find_quantization(json("{}"), "c")->is_null());
  EXPECT_EQ((*find_quantization(json(R"({"quantization_config":{"bits":8}})"), "c"))["bits"], 8);
  EXPECT_EQ((*find_quantization(
                json(R"({"quantization":{"bits":4},"quantization_config":{"quant_method":"fp8"}})"),
                "c"))["bits"],
            4);
  for (const char* method : {"gptq", "awq", "bitsandbytes", "fp8"})
    expect_error(
        find_quantization(
            json(fmt::format(R"({{"quantization_config":{{"quant_method":"{}"}}}})", method)
                     .c_str()),
            "config.json"),
        Code::unsupported, {"config.json", method}, method);
  EXPECT_TRUE(find_quantization(json(R"({"quantization":{"mode":"nvfp4"}})"), "config.json").ok());
  expect_error(find_quantization(json(R"({"quantization":{"mode":"int4"}})"), "config.json"),
               Code::unsupported, {"int4", "nvfp4"}, "mode");
  expect_error(find_quantization(json(R"({"quantization":4})"), "config.json"), Code::corrupt,
               {"quantization"}, "type");
}

}  // namespace
}  // namespace tenon::checkpoint
