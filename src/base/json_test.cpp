#include "base/json.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

TEST(Json, RefusesWhatIsNotJsonAndSaysWhere) {
  for (const char* bad : {"", "{", "nul", "{\"a\":NaN}", "[Infinity]", "{\"a\":1,}", "[1] x",
                          "\"\\ud800\"", "\"\xff\"", "// c\n1", "{'a':1}", "01"}) {
    const auto parsed = parse_json(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, Code::invalid) << bad;
    EXPECT_NE(parsed.error().message.find("byte"), std::string::npos) << parsed.error().message;
  }
}

TEST(Json, DepthKeysAndSizeAreBounded) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_EQ(parse_json(deep).error().code, Code::too_large);
  EXPECT_TRUE(parse_json(std::string(128, '[') + std::string(128, ']')).ok());
  std::string wide = "{\"k\":0";
  for (int i = 0; i < 20000; ++i) wide += fmt::format(",\"{}\":0", i);
  EXPECT_EQ(parse_json(wide + "}").error().code, Code::too_large);
  EXPECT_EQ(parse_json("[1,2,3]", {.bytes_max = 3}).error().code, Code::too_large);
  EXPECT_EQ(parse_json("[1,{\"a\":null}]", {.values_max = 3}).error().code, Code::too_large);
  EXPECT_TRUE(parse_json("[1,{\"a\":null}]", {.values_max = 4}).ok());
}

TEST(Json, FieldsNameThemselves) {
  const Json o =
      *parse_json(R"({"n":5,"f":1.5,"s":"x","b":true,"big":18446744073709551615,"z":null})");
  EXPECT_EQ(*json_int(o, "n", "w"), 5);
  EXPECT_EQ(*json_int_or(o, "z", "w", 7), 7);
  EXPECT_EQ(*json_int_or(o, "absent", "w", 8), 8);
  for (const auto& error :
       {json_int(o, "f", "w").error(), json_int(o, "s", "w").error(),
        json_int(o, "big", "w", 0, 100).error(), json_int(o, "n", "w", 6, 9).error(),
        json_int(o, "absent", "w").error()})
    EXPECT_FALSE(error.field.empty()) << error.message;
  EXPECT_EQ(json_string(o, "n", "req").error().message, "req.n must be a string");
  EXPECT_FALSE(json_bool_or(o, "n", "w", true).ok());
  EXPECT_DOUBLE_EQ(*json_number(o, "n", "w"), 5);
}

TEST(Json, DumpNeverFails) { EXPECT_EQ(dump_json(Json("a\xff")), "\"a\uFFFD\""); }

}  // namespace
}  // namespace tenon
