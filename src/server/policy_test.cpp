// Keys, CORS and request targets.
#include "server/policy.h"

#include <gtest/gtest.h>

namespace tenon::server {
namespace {

TEST(Keys, OnlyTheRightOne) {
  const KeyRing ring({{"a", "secret"}, {"b", "other"}});
  ASSERT_NE(ring.check({"Bearer secret"}, {}), nullptr);
  EXPECT_EQ(*ring.check({"bearer other"}, {}), "b");
  EXPECT_EQ(*ring.check({}, {"secret"}), "a");
  EXPECT_NE(ring.check({"Bearer secret"}, {"other"}), nullptr);
  for (const char* bad : {"secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secret ",
                          "Bearer  secret", "Basic secret", "Bearer k\xC3\xA9y", ""})
    EXPECT_EQ(ring.check({bad}, {}), nullptr) << bad;
  EXPECT_EQ(ring.check({}, {}), nullptr);
  EXPECT_EQ(ring.check({"Bearer secret", "Bearer secret"}, {}), nullptr);
  EXPECT_EQ(ring.check({"Bearer wrong"}, {"secret"}), nullptr);
  EXPECT_EQ(ring.check({"Bearer secret"}, {"wrong"}), nullptr);
}

std::string value(const api::Response::Headers& headers, const std::string& name) {
  for (const auto& [key, text] : headers)
    if (key == name) return text;
  return "";
}

TEST(Cors, NeverCredentials) {
  EXPECT_TRUE(preflight_headers("", "authorization").empty());
  for (const char* origin : {"*", "http://localhost:3000"}) {
    const auto headers = preflight_headers(origin, "authorization, x-stainless-os");
    EXPECT_EQ(value(headers, "access-control-allow-origin"), origin);
    EXPECT_EQ(value(headers, "access-control-allow-credentials"), "");
    for (const char* name : {"authorization", "x-api-key", "x-stainless-os"})
      EXPECT_NE(value(headers, "access-control-allow-headers").find(name), std::string::npos);
  }
  EXPECT_EQ(value(preflight_headers("*", "a\r\nb: c"), "access-control-allow-headers").find('\r'),
            std::string::npos);
}

TEST(Targets, Decoded) {
  EXPECT_EQ(parse_target("/v1/models/a%2Fb%20c?x=%41")->path, "/v1/models/a/b c");
  EXPECT_EQ(parse_target("/a?x=%41")->query, "x=%41");
  EXPECT_EQ(parse_target("http://host:1/a")->path, "/a");
  EXPECT_EQ(parse_target("http://host")->path, "/");
  for (const char* bad : {"", "a", "*", "/%", "/%4", "/%zz", "/a%00b", "/a%0Ab"})
    EXPECT_FALSE(parse_target(bad).ok()) << bad;
}

}  // namespace
}  // namespace tenon::server
