#include "checkpoint/directory.h"

#include <sys/stat.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/mapping.h"
#include "checkpoint/test_files.h"

namespace tenon::checkpoint {
namespace {

namespace fs = std::filesystem;

// One U8 tensor of four bytes.
std::string shard(std::string_view tensor) {
  return safetensors_file(
      fmt::format(R"({{"{}":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}}})", tensor), 4);
}

class Folder : public testing::Test {
 protected:
  void SetUp() override { dir.write("config.json", R"({"model_type":"llama"})"); }
  Result<std::unique_ptr<Checkpoint>> open() { return Checkpoint::open(dir.path()); }
  void index(std::string_view weight_map) {
    dir.write("model.safetensors.index.json",
              fmt::format(R"({{"metadata":{{}},"weight_map":{}}})", weight_map));
  }
  TempDir dir;
};

TEST_F(Folder, AllFilesAreFound) {
  dir.write("generation_config.json", R"({"temperature":0.5})");
  dir.write("kv_config.json", R"([{"layer_idx":0,"bits":8,"group_size":64}])");
  dir.write("tokenizer.json", "{}");
  dir.write("tokenizer_config.json", R"({"chat_template":"old"})");
  dir.write("chat_template.jinja", "new");
  dir.write("b.safetensors", shard("b"));
  dir.write("a.safetensors", shard("a"));
  dir.write("optiq_vision.safetensors", shard("vision"));
  dir.write("._a.safetensors", "junk");
  auto model = open();
  ASSERT_TRUE(model.ok()) << model.error().message;
  const profile::Manifest& manifest = (*model)->manifest();
  EXPECT_EQ(manifest.path, dir.path());
  EXPECT_EQ(manifest.container, "safetensors");
  EXPECT_EQ(manifest.config["model_type"], "llama");
  EXPECT_EQ(manifest.generation_config["temperature"], 0.5);
  EXPECT_EQ(manifest.kv_config[0]["bits"], 8);
  EXPECT_EQ((*model)->text().tokenizer_json, "{}");
  EXPECT_EQ((*model)->text().chat_template, "new");
  EXPECT_EQ((*model)->weights().names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ((*model)->bytes(), 8u);
}

TEST_F(Folder, ViewsOutliveTheCheckpoint) {
  dir.write("m.safetensors", shard("a"));
  WeightView a = *(*open())->weights().take("a");
  EXPECT_EQ(a.bytes[3], std::byte{1});
  EXPECT_TRUE(a.from_file);
}

TEST_F(Folder, OptionalFilesMayBeAbsent) {
  dir.write("m.safetensors", shard("a"));
  auto model = open();
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE((*model)->manifest().generation_config.is_null());
  EXPECT_TRUE((*model)->manifest().kv_config.is_null());
  EXPECT_TRUE((*model)->text().tokenizer_config.is_null());
  EXPECT_EQ((*model)->text().chat_template, "");
}

TEST_F(Folder, TemplatesByName) {
  dir.write("m.safetensors", shard("a"));
  dir.write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"T"},)"
                                     R"({"name":"default","template":"D"}]})");
  EXPECT_EQ((*open())->text().chat_template, "D");
  dir.write("tokenizer_config.json", R"({"chat_template":[{"name":"default"}]})");
  expect_error(open(), Code::corrupt, {"tokenizer_config.json", "chat_template"}, "no template");
  dir.write("tokenizer_config.json", R"({"chat_template":7})");
  expect_error(open(), Code::corrupt, {"tokenizer_config.json", "chat_template"}, "number");
}

TEST_F(Folder, ConfigIsChecked) {
  dir.write("m.safetensors", shard("a"));
  dir.write("config.json", "[]");
  expect_error(open(), Code::corrupt, {"config.json", "object"}, "array");
  dir.write("config.json", R"({"model_type":)");
  expect_error(open(), Code::corrupt, {"config.json", "JSON"}, "cut");
  dir.write("config.json", "");
  expect_error(open(), Code::corrupt, {"config.json"}, "empty");
  dir.write("config.json", std::string((4 << 20) + 1, ' '));
  expect_error(open(), Code::too_large, {"config.json"}, "large");
  dir.write("config.json", R"({"quantization_config":{"quant_method":"gptq"}})");
  expect_error(open(), Code::unsupported, {"config.json", "gptq"}, "gptq");
  fs::remove(dir.file("config.json"));
  expect_error(open(), Code::not_found, {"config.json"}, "absent");
}

TEST_F(Folder, NoIndexTakesEveryShard) {
  expect_error(open(), Code::not_found, {dir.path(), "*.safetensors"}, "none");
  dir.write("1.safetensors", shard("a"));
  dir.write("2.safetensors", shard("a"));
  expect_error(open(), Code::corrupt, {"1.safetensors", "2.safetensors", "tensor a"},
               "same tensor");
  dir.write("2.safetensors", shard("b").substr(0, 30));
  expect_error(open(), Code::corrupt, {"2.safetensors"}, "cut");
  dir.write("2.safetensors", "");
  expect_error(open(), Code::corrupt, {"2.safetensors", "empty"}, "empty");
}

TEST_F(Folder, IndexDecides) {
  dir.write("1.safetensors", shard("a"));
  dir.write("2.safetensors", shard("b"));
  dir.write("stray.safetensors", "not even a header");
  index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  auto model = open();
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->weights().names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(Folder, BadIndexesAreNamed) {
  dir.write("1.safetensors", shard("a"));
  dir.write("2.safetensors", shard("b"));
  const std::string file = "model.safetensors.index.json";
  index(R"({"a":"1.safetensors","b":"3.safetensors"})");
  expect_error(open(), Code::not_found, {"3.safetensors"}, "absent shard");
  index(R"({"a":"1.safetensors","c.weight":"2.safetensors"})");
  expect_error(open(), Code::not_found, {"2.safetensors", "c.weight"}, "absent tensor");
  index(R"({"a":"1.safetensors","b":"1.safetensors"})");
  expect_error(open(), Code::not_found, {"1.safetensors", "tensor b"}, "wrong shard");
  index(R"({"a":"2.safetensors","b":"2.safetensors"})");
  expect_error(open(), Code::not_found, {"2.safetensors", "tensor a"}, "wrong shard");
  for (const char* name : {"\"../1.safetensors\"", "\"/etc/passwd\"", "\"x/1.safetensors\"",
                           "\"..\"", "\"\"", "\"1.safetensors\\u0000\"", "7", "null"}) {
    index(fmt::format(R"({{"a":{}}})", name));
    expect_error(open(), Code::corrupt, {file, "tensor a"}, name);
  }
  for (const char* map : {"{}", "[]", "null", "{"}) {
    index(map);
    expect_error(open(), Code::corrupt, {file}, map);
  }
  dir.write(file, "[]");
  expect_error(open(), Code::corrupt, {file, "weight_map"}, "array");
}

TEST(Open, OtherPathsAreRefused) {
  TempDir dir;
  expect_error(Checkpoint::open(dir.file("nowhere")), Code::not_found, {"nowhere"}, "absent");
  expect_error(Checkpoint::open(dir.write("m.bin", "x")), Code::unsupported, {"m.bin", ".gguf"},
               "bin");
  expect_error(Checkpoint::open(dir.write("m.gguf", "")), Code::corrupt, {"m.gguf", "empty"},
               "empty");
  expect_error(Checkpoint::open(dir.write("n.gguf", "GGUF")), Code::corrupt, {"n.gguf", "cut"},
               "cut");
  ASSERT_EQ(::mkfifo(dir.file("p.gguf").c_str(), 0600), 0);
  expect_error(Checkpoint::open(dir.file("p.gguf")), Code::invalid, {"p.gguf", "regular"}, "pipe");
}

TEST(Mapping, FoldersAndLimits) {
  TempDir dir;
  expect_error(map_file(dir.path()), Code::invalid, {dir.path(), "regular"}, "folder");
  const std::string file = dir.write("f", "12345");
  EXPECT_EQ(map_file(file)->bytes.size(), 5u);
  EXPECT_EQ(read_small_file(file, 5)->value(), "12345");
  expect_error(read_small_file(file, 4), Code::too_large, {file, "5 bytes"}, "limit");
  EXPECT_FALSE(read_small_file(dir.file("g"), 4)->has_value());
}

}  // namespace
}  // namespace tenon::checkpoint
