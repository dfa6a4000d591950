#include "checkpoint/safetensors.h"

#include "checkpoint/layout.h"
#include "checkpoint/test_files.h"

namespace tenon::checkpoint {
namespace {

Result<std::vector<WeightView>> parse(std::string_view file) {
  auto bytes = std::make_shared<std::vector<std::byte>>(exact(file));
  return parse_safetensors(*bytes, bytes, "m.safetensors");
}

TEST(Safetensors, ReadsNamesShapesAndBytes) {
  const auto views = parse(safetensors_file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("empty":{"dtype":"BF16","shape":[0,7],"data_offsets":[24,24]},)"
      R"("scalar":{"dtype":"U8","shape":[],"data_offsets":[24,25]}}  )",
      25));
  ASSERT_TRUE(views.ok()) << views.error().message;
  ASSERT_EQ(views->size(), 3u);
  const WeightView& a = (*views)[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.format, Format::f32);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a.bytes.size(), 24u);
  EXPECT_EQ(a.bytes[0], std::byte{1});
  EXPECT_TRUE((*views)[1].bytes.empty());
  EXPECT_TRUE((*views)[2].shape.empty());
  EXPECT_EQ((*views)[2].bytes.size(), 1u);
}

TEST(Safetensors, ToleratesHoles) {
  EXPECT_TRUE(
      parse(safetensors_file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 64)).ok());
}

struct Damage {
  const char* what;
  std::string header;
  size_t data;
  Code code;
  std::vector<std::string> message;
};

std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"t.w":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape,
                     offsets);
}

TEST(Safetensors, DamagedHeadersAreErrors) {
  const std::string two = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)";
  const std::string nested(2000, '[');
  const Damage table[] = {
      {"shape over data",
       one("F32", "[1000,1000]", "[0,4]"),
       4,
       Code::corrupt,
       {"t.w", "[1000, 1000]", "4000000"}},
      {"past the end",
       one("F32", "[1000,1000]", "[0,4000000]"),
       4,
       Code::corrupt,
       {"t.w", "4000000"}},
      {"end before begin", one("F32", "[1]", "[4,0]"), 8, Code::corrupt, {"t.w"}},
      {"end before begin, huge",
       one("U8", "[1]", "[18446744073709551615,0]"),
       8,
       Code::corrupt,
       {"t.w"}},
      {"offset over 64 bits",
       one("U8", "[1]", "[0,18446744073709551616]"),
       8,
       Code::corrupt,
       {"t.w"}},
      {"product overflow",
       one("F32", "[4294967296,4294967296]", "[0,0]"),
       8,
       Code::corrupt,
       {"t.w", "overflow"}},
      {"byte overflow",
       one("F64", "[4611686018427387904]", "[0,0]"),
       8,
       Code::corrupt,
       {"t.w", "overflow"}},
      {"dimension overflow",
       one("U8", "[18446744073709551615]", "[0,0]"),
       8,
       Code::corrupt,
       {"t.w", "overflow"}},
      {"negative dimension", one("U8", "[-1]", "[0,0]"), 8, Code::corrupt, {"t.w"}},
      {"fractional dimension", one("U8", "[1.0]", "[0,1]"), 8, Code::corrupt, {"t.w"}},
      {"three offsets", one("U8", "[1]", "[0,1,2]"), 8, Code::corrupt, {"t.w"}},
      {"nested shape", one("U8", "[[1]]", "[0,1]"), 8, Code::corrupt, {"t.w"}},
      {"deep shape", one("U8", nested, "[0,1]"), 8, Code::corrupt, {"t.w"}},
      {"shape is text", one("U8", "\"1\"", "[0,1]"), 8, Code::corrupt, {"t.w"}},
      {"float8", one("F8_E4M3", "[1]", "[0,1]"), 8, Code::unsupported, {"t.w", "F8_E4M3"}},
      {"unknown dtype", one("Q99", "[1]", "[0,1]"), 8, Code::unsupported, {"t.w", "Q99"}},
      {"no dtype",
       R"({"t.w":{"shape":[1],"data_offsets":[0,1]}})",
       8,
       Code::corrupt,
       {"t.w", "dtype"}},
      {"no offsets",
       R"({"t.w":{"dtype":"U8","shape":[1]}})",
       8,
       Code::corrupt,
       {"t.w", "data_offsets"}},
      {"unknown field", R"({"t.w":{"dtype":"U8","extra":1}})", 8, Code::corrupt, {"t.w"}},
      {"entry is a number", R"({"t.w":1})", 8, Code::corrupt, {"t.w"}},
      {"metadata value is a number",
       R"({"__metadata__":{"a":1}})",
       8,
       Code::corrupt,
       {"__metadata__"}},
      {"metadata twice",
       R"({"__metadata__":{},"__metadata__":{}})",
       8,
       Code::corrupt,
       {"__metadata__", "twice"}},
      {"empty name",
       R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       8,
       Code::corrupt,
       {"empty name"}},
      {"overlap",
       two + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
       8,
       Code::corrupt,
       {"a", "b", "overlap"}},
      {"same name",
       two + R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       8,
       Code::corrupt,
       {"a", "twice"}},
      {"field twice",
       R"({"a":{"dtype":"U8","dtype":"U8"}})",
       8,
       Code::corrupt,
       {"a.dtype", "twice"}},
      {"an array", "[1]", 8, Code::corrupt, {"not a JSON object"}},
      {"not JSON", "{nonsense}", 8, Code::corrupt, {"not valid JSON"}},
      {"two documents", "{}{}", 8, Code::corrupt, {"not valid JSON"}},
      {"invalid UTF-8", "{\"\xff\":1}", 8, Code::corrupt, {"not valid JSON"}},
      {"line break in a name", R"({"a\nb":1})", 8, Code::corrupt, {"a?b"}},
  };
  for (const Damage& d : table) {
    auto message = d.message;
    message.push_back("m.safetensors");
    expect_error(parse(safetensors_file(d.header, d.data)), d.code, message, d.what);
  }
}

TEST(Safetensors, HeaderLengthIsCheckedFirst) {
  for (uint64_t len :
       {uint64_t{0}, uint64_t{1}, uint64_t{100'000'001}, uint64_t{1} << 60, UINT64_MAX})
    expect_error(parse(raw(len) + "{}"), Code::corrupt, {"m.safetensors", "header length"},
                 fmt::format("{}", len));
  expect_error(parse(raw<uint64_t>(3) + "{}"), Code::corrupt, {"cut"}, "one byte short");
}

TEST(Safetensors, EveryCutIsAnError) {
  const std::string whole =
      safetensors_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
                       11);
  ASSERT_TRUE(parse(whole).ok());
  for (size_t len = 0; len < whole.size(); ++len)
    expect_error(parse(whole.substr(0, len)), Code::corrupt, {"m.safetensors"},
                 fmt::format("{}", len));
}

TEST(Layout, NamesInMessagesAreShortAndOneLine) {
  EXPECT_EQ(shown("a\n\tb"), "a??b");
  EXPECT_EQ(shown(""), "(empty)");
  EXPECT_LE(shown(std::string(1000, 'x')).size(), 123u);
  EXPECT_EQ(shown(std::string(119, 'x') + "\u00e9\u00e9"), std::string(119, 'x') + "...");
}

}  // namespace
}  // namespace tenon::checkpoint
