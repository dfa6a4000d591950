#include "checkpoint/gguf.h"

#include <cmath>

#include "checkpoint/test_files.h"

namespace tenon::checkpoint {
namespace {

Result<GgufFile> parse(std::string_view file) {
  auto bytes = std::make_shared<std::vector<std::byte>>(exact(file));
  return parse_gguf(*bytes, bytes, "m.gguf");
}

TEST(Gguf, ReadsEveryValueType) {
  GgufBuilder b;
  b.raw_value("u8", 0, raw<uint8_t>(200)).raw_value("i8", 1, raw<int8_t>(-5));
  b.raw_value("u16", 2, raw<uint16_t>(60000)).raw_value("i16", 3, raw<int16_t>(-300));
  b.u32("u32", 7).raw_value("i32", 5, raw<int32_t>(-7)).f32("f32", 1e-5f).boolean("bool", true);
  b.string("string", "text").raw_value("u64", 10, raw<uint64_t>(1ull << 40));
  b.raw_value("i64", 11, raw<int64_t>(-(1ll << 40))).raw_value("f64", 12, raw(0.1));
  b.strings("strings", {"a", "", "a"}).array("i32s", 5, 2, raw<int32_t>(-1) + raw<int32_t>(2));
  b.array("f32s", 6, 1, raw(0.5f)).array("none", 4, 0, "");
  b.version = 2;
  const auto file = parse(b.build());
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto integer = [&](const char* key) {
    return gguf_int(*file, key, INT64_MIN, INT64_MAX)->value();
  };
  EXPECT_EQ(integer("u8"), 200);
  EXPECT_EQ(integer("i8"), -5);
  EXPECT_EQ(integer("u16"), 60000);
  EXPECT_EQ(integer("i16"), -300);
  EXPECT_EQ(integer("u32"), 7);
  EXPECT_EQ(integer("i32"), -7);
  EXPECT_EQ(integer("u64"), 1ll << 40);
  EXPECT_EQ(integer("i64"), -(1ll << 40));
  EXPECT_EQ(gguf_number(*file, "f32")->value(), 1e-5);
  EXPECT_EQ(gguf_number(*file, "f64")->value(), 0.1);
  EXPECT_TRUE(gguf_bool(*file, "bool")->value());
  EXPECT_EQ(gguf_string(*file, "string")->value(), "text");
  EXPECT_EQ(gguf_strings(*file, "strings")->value(), (std::vector<std::string_view>{"a", "", "a"}));
  EXPECT_EQ(gguf_ints(*file, "i32s")->value(), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(gguf_floats(*file, "f32s")->value(), (std::vector<float>{0.5f}));
  EXPECT_TRUE(gguf_ints(*file, "none")->value().empty());
  EXPECT_FALSE(gguf_int(*file, "absent", 0, 1)->has_value());
}

TEST(Gguf, WrongTypesNameTheKey) {
  GgufBuilder b;
  b.string("s", "x").u32("n", 9).f32("nan", std::nanf("")).strings("list", {"1.0"});
  b.raw_value("big", 10, raw(UINT64_MAX));
  const auto file = parse(b.build());
  ASSERT_TRUE(file.ok()) << file.error().message;
  expect_error(gguf_int(*file, "s", 0, 1), Code::corrupt,
               {"m.gguf", "s must be an integer", "string"}, "s");
  expect_error(gguf_int(*file, "n", 0, 8), Code::corrupt, {"n is 9", "0 and 8"}, "n");
  expect_error(gguf_int(*file, "big", 0, INT64_MAX), Code::corrupt, {"big"}, "big");
  expect_error(gguf_number(*file, "nan"), Code::corrupt, {"nan", "finite"}, "nan");
  expect_error(gguf_number(*file, "n"), Code::corrupt, {"n must be a float"}, "number");
  expect_error(gguf_floats(*file, "list"), Code::corrupt,
               {"list must be an array of f32", "string"}, "list");
  expect_error(gguf_ints(*file, "n"), Code::corrupt, {"n must be an array"}, "scalar");
  expect_error(gguf_strings(*file, "s"), Code::corrupt, {"s must be an array"}, "string");
}

TEST(Gguf, PlacesTensorsOutermostFirst) {
  GgufBuilder b;
  b.tensor("a", {64, 2}, 2, 72).tensor("b", {3}, 0, 12);
  const auto file = parse(b.build());
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->tensors.size(), 2u);
  EXPECT_EQ(file->tensors[0].shape, (std::vector<int64_t>{2, 64}));
  EXPECT_EQ(file->tensors[0].format, Format::q4_0);
  EXPECT_EQ(file->tensors[0].bytes.size(), 72u);
  EXPECT_EQ(file->tensors[1].bytes.data() - file->tensors[0].bytes.data(), 96);
}

struct Damage {
  const char* what;
  GgufBuilder file;
  Code code;
  std::vector<std::string> message;
};

TEST(Gguf, DamagedFilesAreErrors) {
  constexpr uint64_t kHuge = 1ull << 60;
  GgufBuilder v1, v4, swapped, many_tensors, many_values;
  v1.version = 1;
  v4.version = 4;
  swapped.version = 0x03000000;
  many_tensors.tensor_count = kHuge;
  many_values.value_count = kHuge;
  const Damage table[] = {
      {"version 1", v1, Code::unsupported, {"version 1"}},
      {"version 4", v4, Code::unsupported, {"version 4"}},
      {"big endian", swapped, Code::unsupported, {"big-endian"}},
      {"tensor count", many_tensors, Code::corrupt, {"tensors do not fit"}},
      {"value count", many_values, Code::corrupt, {"metadata values do not fit"}},
      {"empty key", GgufBuilder().u32("", 1), Code::corrupt, {"metadata key 0 is empty"}},
      {"key twice", GgufBuilder().u32("k", 1).u32("k", 1), Code::corrupt, {"k", "twice"}},
      {"value type", GgufBuilder().raw_value("k", 13, "12345678"), Code::unsupported, {"k", "13"}},
      {"boolean 2", GgufBuilder().raw_value("k", 7, "\2"), Code::corrupt, {"k", "boolean"}},
      {"nested array",
       GgufBuilder().array("k", 9, 1, "123456789012"),
       Code::unsupported,
       {"k", "array of arrays"}},
      {"element type", GgufBuilder().array("k", 99, 1, "12345678"), Code::unsupported, {"k", "99"}},
      {"array of 2^60 u8",
       GgufBuilder().array("k", 0, kHuge, "1"),
       Code::corrupt,
       {"k", "does not fit"}},
      {"array of 2^60 u64",
       GgufBuilder().array("k", 10, kHuge, "1"),
       Code::corrupt,
       {"k", "does not fit"}},
      {"array of 2^60 strings",
       GgufBuilder().array("k", 8, kHuge, "1"),
       Code::corrupt,
       {"k", "does not fit"}},
      {"string of 2^60", GgufBuilder().raw_value("k", 8, raw(kHuge)), Code::corrupt, {"k", "cut"}},
      {"string of 2^64-1",
       GgufBuilder().raw_value("k", 8, raw(UINT64_MAX)),
       Code::corrupt,
       {"k", "cut"}},
      {"alignment 0",
       GgufBuilder().u32("general.alignment", 0),
       Code::corrupt,
       {"general.alignment"}},
      {"alignment 48",
       GgufBuilder().u32("general.alignment", 48),
       Code::corrupt,
       {"general.alignment"}},
      {"alignment is text",
       GgufBuilder().string("general.alignment", "8"),
       Code::corrupt,
       {"general.alignment"}},
      {"tensor name empty", GgufBuilder().tensor("", {4}, 0, 16), Code::corrupt, {"empty name"}},
      {"tensor twice",
       GgufBuilder().tensor("t", {4}, 0, 16).tensor("t", {4}, 0, 16),
       Code::corrupt,
       {"t", "twice"}},
      {"five dimensions",
       GgufBuilder().tensor("t", {1, 1, 1, 1, 1}, 0, 4),
       Code::corrupt,
       {"t", "5 dimensions"}},
      {"IQ4_XS", GgufBuilder().tensor("t.w", {256}, 23, 136), Code::unsupported, {"t.w", "IQ4_XS"}},
      {"unknown type",
       GgufBuilder().tensor("t.w", {256}, 77, 136),
       Code::unsupported,
       {"t.w", "77"}},
      {"partial block",
       GgufBuilder().tensor("t.w", {33}, 2, 36),
       Code::corrupt,
       {"t.w", "33", "q4_0"}},
      {"shape over data",
       GgufBuilder().tensor("t.w", {1000, 1000}, 0, 4),
       Code::corrupt,
       {"t.w", "[1000, 1000]", "4000000"}},
      {"shape overflow",
       GgufBuilder().tensor("t.w", {1ull << 40, 1ull << 40}, 0, 4),
       Code::corrupt,
       {"t.w", "overflow"}},
      {"dimension overflow",
       GgufBuilder().tensor("t.w", {UINT64_MAX}, 0, 4),
       Code::corrupt,
       {"t.w", "overflow"}},
      {"offset past the end",
       GgufBuilder().tensor_at("t.w", {1}, 0, kHuge).data(64),
       Code::corrupt,
       {"t.w"}},
      {"offset wraps",
       GgufBuilder().tensor_at("t.w", {8}, 0, UINT64_MAX - 31).data(64),
       Code::corrupt,
       {"t.w"}},
      {"misaligned",
       GgufBuilder().tensor_at("t.w", {1}, 0, 4).data(64),
       Code::corrupt,
       {"t.w", "multiple of 32"}},
      {"overlap",
       GgufBuilder().tensor_at("a.w", {16}, 0, 0).tensor_at("b.w", {4}, 0, 32).data(96),
       Code::corrupt,
       {"a.w", "b.w", "overlap"}},
  };
  for (const Damage& d : table) {
    auto message = d.message;
    message.push_back("m.gguf");
    expect_error(parse(d.file.build()), d.code, message, d.what);
  }
}

TEST(Gguf, EveryCutIsAnError) {
  GgufBuilder b;
  b.string("general.architecture", "llama")
      .strings("list", {"ab", "c"})
      .u32("n", 1)
      .boolean("b", true);
  b.tensor("x", {32, 2}, 8, 68).tensor("y", {4}, 0, 16);
  const std::string whole = b.build();
  ASSERT_TRUE(parse(whole).ok()) << parse(whole).error().message;
  for (size_t len = 0; len < whole.size(); ++len)
    expect_error(parse(whole.substr(0, len)), Code::corrupt, {"m.gguf"},
                 fmt::format("cut at {}", len));
}

TEST(Gguf, OtherFilesAreNamed) {
  expect_error(parse("PK\3\4 and so on"), Code::corrupt, {"m.gguf", "not a GGUF file"}, "zip");
}

}  // namespace
}  // namespace tenon::checkpoint
