#include "checkpoint/conversion.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_files.h"

namespace tenon::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

size_t files_in(const TempDir& dir) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(dir.path()), {}));
}

WeightView view(std::string name, Format format, std::vector<int64_t> shape,
                std::span<const std::byte> bytes) {
  return {bytes, std::move(shape), format, nullptr, std::move(name)};
}

TEST(SafetensorsWriter, HeaderIsAlignedAndReadsBack) {
  TempDir dir;
  const std::vector<float> logits{1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> ids{7, 8};
  const std::vector<WeightView> tensors{
      view("logits", Format::f32, {2, 3}, std::as_bytes(std::span(logits))),
      view("ids", Format::i32, {2}, std::as_bytes(std::span(ids)))};
  const std::string path = dir.file("out.safetensors");
  ASSERT_TRUE(write_safetensors(path, tensors, {{"kernels", "mlx"}}).ok());
  const std::string bytes = read_file(path);
  uint64_t header_len = 0;
  std::memcpy(&header_len, bytes.data(), 8);
  EXPECT_EQ(header_len % 8, 0u);
  ASSERT_EQ(bytes.size(), 8 + header_len + 24 + 8);
  const Json header = Json::parse(bytes.substr(8, header_len));
  EXPECT_EQ(header["logits"].dump(), R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})");
  EXPECT_EQ(header["ids"]["data_offsets"].dump(), "[24,32]");
  EXPECT_EQ(header["__metadata__"]["kernels"], "mlx");
  auto data = std::make_shared<std::vector<std::byte>>(exact(bytes));
  const auto back = parse_safetensors(*data, data, path);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(std::memcmp((*back)[0].bytes.data(), logits.data(), 24), 0);
}

TEST(SafetensorsWriter, WhatIsNotFinishedIsNotThere) {
  TempDir dir;
  {
    const std::vector<TensorHeader> one{{"a", Format::u8, {2}}};
    auto writer = SafetensorsWriter::create(dir.file("x.safetensors"), one, {});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(files_in(dir), 1u);
  }
  EXPECT_EQ(files_in(dir), 0u);
  expect_error(write_safetensors(dir.file("no/x.safetensors"), {}, {}), Code::unavailable,
               {"no/x.safetensors"}, "no folder");
}

TEST(Matches, StarsAndQuestionMarks) {
  for (const char* good : {"model.layers.0.mlp.down_proj", "*", "*down_proj", "model.*.down_proj",
                           "model.layers.?.mlp.*", "**down**"})
    EXPECT_TRUE(matches(good, "model.layers.0.mlp.down_proj")) << good;
  for (const char* bad : {"", "down_proj", "model.layers.?", "*up_proj", "?"})
    EXPECT_FALSE(matches(bad, "model.layers.0.mlp.down_proj")) << bad;
  EXPECT_FALSE(matches(std::string(50, '*') + "b", std::string(5000, 'a'))) << "and in linear time";
}

// Two matrices of rows of 64 and a norm, all float32.
class Plan : public testing::Test {
 protected:
  Result<ConversionPlan> plan(const ConvertOptions& options) {
    std::vector<WeightView> tensors;
    const auto bytes = std::as_bytes(std::span(values_));
    for (const char* name : {"lm_head.weight", "model.layers.0.mlp.up_proj.weight"})
      tensors.push_back(view(name, Format::f32, {4, 64}, bytes));
    tensors.push_back(view("model.norm.weight", Format::f32, {64}, bytes.subspan(0, 256)));
    return plan_conversion(Weights(std::move(tensors), "m"), Json(), options, "m");
  }
  const std::vector<float> values_ = std::vector<float>(256, 0.5f);
};

TEST_F(Plan, QuantizesMatricesAndNamesTheExceptions) {
  ConvertOptions options;
  options.scheme = Scheme{true, 4, 32};
  options.overrides = {{"*", {true, 4, 32}}, {"lm_*", {true, 8, 64}}};
  options.dtype = Format::bf16;
  const auto made = plan(options);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->jobs.size(), 3u);
  const Job& head = made->jobs[0];
  ASSERT_EQ(head.out.size(), 3u);
  EXPECT_EQ(head.out[0].format, Format::u32);
  EXPECT_EQ(head.out[0].shape, (std::vector<int64_t>{4, 16}));
  EXPECT_EQ(head.out[1].name, "lm_head.scales");
  EXPECT_EQ(head.out[1].format, Format::bf16);
  EXPECT_EQ(head.out[2].shape, (std::vector<int64_t>{4, 1}));
  EXPECT_FALSE(made->jobs[2].wanted.quantized) << "a norm is no matrix";
  EXPECT_EQ(made->jobs[2].out[0].format, Format::bf16);
  EXPECT_EQ(made->quantization.dump(), R"({"group_size":32,"bits":4,"mode":"affine",)"
                                       R"("lm_head":{"group_size":64,"bits":8,"mode":"affine"}})");
  for (const Job& job : made->jobs) EXPECT_EQ(compute(job).size(), job.out.size());
}

TEST_F(Plan, RowsThatAreNotWholeGroups) {
  ConvertOptions options;
  options.scheme = Scheme{true, 4, 128};
  const auto made = plan(options);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made->quantization.is_null()) << "they stay floats";
  options.overrides = {{"lm_head", {true, 4, 128}}};
  expect_error(plan(options), Code::invalid, {"lm_head", "64", "128"}, "asked for by name");
  options.overrides = {{"lm_haed", {true, 4, 64}}};
  expect_error(plan(options), Code::invalid, {"lm_haed"}, "matches nothing");
}

TEST(Scheme, BitsAndGroupsFitTheMode) {
  EXPECT_TRUE(check_scheme({true, 3, 128}).ok());
  EXPECT_TRUE(check_scheme({true, 4, 16, QuantMode::nvfp4}).ok());
  expect_error(check_scheme({true, 7, 32}), Code::invalid, {"bits 7", "2, 3, 4, 5, 6, 8"}, "bits");
  expect_error(check_scheme({true, 4, 64, QuantMode::mxfp4}), Code::invalid, {"group 64", "32"},
               "group");
}

class Whole : public testing::Test {
 protected:
  void SetUp() override {
    GgufBuilder b = tiny_llama_head();
    add_tiny_llama_tensors(b);
    auto opened = Checkpoint::open(dir_.write("m.gguf", b.build()));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    from_ = std::move(opened).value();
  }
  TempDir dir_;
  std::unique_ptr<Checkpoint> from_;
};

TEST_F(Whole, OpensAgainWithTheSameTensors) {
  const auto done = convert(*from_, dir_.file("out/"), {});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->num_files, 1);
  EXPECT_EQ(done->bits_per_weight, 32);
  auto to = Checkpoint::open(dir_.file("out"));
  ASSERT_TRUE(to.ok()) << to.error().message;
  EXPECT_EQ((*to)->manifest().config, from_->manifest().config);
  ASSERT_EQ((*to)->weights().names(), from_->weights().names());
  for (const std::string& name : from_->weights().names()) {
    const WeightView a = *from_->weights().find(name), b = *(*to)->weights().find(name);
    EXPECT_EQ(a.shape, b.shape) << name;
    EXPECT_TRUE(std::ranges::equal(a.bytes, b.bytes)) << name;
  }
}

TEST_F(Whole, ShardsAndTheirIndex) {
  ConvertOptions options;
  options.shard_bytes_max = 130;
  const auto done = convert(*from_, dir_.file("out"), options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_GT(done->num_files, 3);
  auto to = Checkpoint::open(dir_.file("out"));
  ASSERT_TRUE(to.ok()) << to.error().message;
  EXPECT_EQ((*to)->weights().names(), from_->weights().names());
  EXPECT_EQ((*to)->bytes(), from_->bytes());
}

TEST_F(Whole, LeavesNothingWhenItFails) {
  ConvertOptions options;
  options.on_progress = [](double) { return false; };
  expect_error(convert(*from_, dir_.file("out"), options), Code::cancelled, {}, "stopped");
  EXPECT_EQ(files_in(dir_), 1u) << "only the source";
  dir_.write("taken", "x");
  expect_error(convert(*from_, dir_.file("taken"), {}), Code::invalid, {"taken", "exists"},
               "taken");
  expect_error(convert(*from_, dir_.file("no/out"), {}), Code::unavailable, {"no/out"},
               "no parent");
  EXPECT_EQ(files_in(dir_), 2u);
}

}  // namespace
}  // namespace tenon::checkpoint
