// Routes, the error table, and the small endpoints.
#include "api/test_reply.h"

namespace tenon::api {
namespace {

using RoutesTest = ApiTest;

TEST_F(RoutesTest, UnknownAndWrongMethod) {
  EXPECT_EQ(call("/nope", "", "GET")->status, 404);
  const auto reply = call("/v1/chat/completions", "", "GET");
  EXPECT_EQ(reply->status, 405);
  EXPECT_EQ(reply->header("allow"), "POST");
  EXPECT_EQ(call("/v1/models", "{}")->status, 405);
  EXPECT_EQ(call("/v1/models/", "", "GET")->status, 404);
  EXPECT_NE(find_route("HEAD", "/health").endpoint, nullptr);
}

TEST_F(RoutesTest, ContentType) {
  const auto status = [&](std::map<std::string, std::string> headers) {
    auto response = std::make_shared<TestResponse>();
    dispatch(context,
             {"POST", "/v1/completions", "", std::move(headers), R"({"prompt":"[[say a]]"})"},
             response);
    EXPECT_TRUE(response->wait());
    return response->status;
  };
  EXPECT_EQ(status({{"content-type", "text/plain"}}), 415);
  EXPECT_EQ(status({{"content-type", "Application/JSON ; charset=utf-8"}}), 200);
  EXPECT_EQ(status({}), 200);
  EXPECT_EQ(status({{"origin", "http://elsewhere"}}), 415);
}

TEST_F(RoutesTest, Small) {
  EXPECT_EQ(call("/health", "", "GET")->body, R"({"status":"ok"})");
  EXPECT_EQ(call("/ready", "", "GET")->status, 200);
  EXPECT_EQ(Json::parse(call("/v1/models", "", "GET")->body)["data"][0]["id"], "fake");
  EXPECT_EQ(Json::parse(call("/v1/models/fake", "", "GET")->body)["object"], "model");
  const auto none = call("/v1/models/../x", "", "GET");
  EXPECT_EQ(none->status, 404);
  EXPECT_EQ(Json::parse(none->body)["error"]["code"], "model_not_found");
  EXPECT_TRUE(Json::parse(call("/stats", "", "GET")->body)["running"].is_number());
  engine->drain(0);
  EXPECT_EQ(call("/ready", "", "GET")->status, 503);
  EXPECT_EQ(complete("x")->status, 503);
}

TEST_F(RoutesTest, TokenizeAndBack) {
  const Json tokens = Json::parse(call("/tokenize", R"({"content":"hé<|im_end|>"})")->body);
  EXPECT_EQ(tokens["tokens"], Json::parse("[104,195,169,261]"));
  EXPECT_EQ(
      Json::parse(call("/tokenize", R"({"content":"<s>","parse_special":false})")->body)["count"],
      3);
  EXPECT_EQ(Json::parse(call("/detokenize", R"({"tokens":[104,195,169]})")->body)["content"], "hé");
  EXPECT_EQ(call("/detokenize", R"({"tokens":[999]})")->status, 400);
  EXPECT_EQ(call("/tokenize", R"({"x":1})")->status, 400);
}

TEST(Errors, Table) {
  EXPECT_EQ(wire_error(Code::invalid).status, 400);
  EXPECT_EQ(wire_error(Code::not_found).status, 404);
  EXPECT_EQ(wire_error(Code::unsupported).status, 400);
  EXPECT_EQ(wire_error(Code::too_large).status, 413);
  EXPECT_EQ(wire_error(Code::overloaded).status, 429);
  EXPECT_EQ(wire_error(Code::cancelled).status, 499);
  EXPECT_EQ(wire_error(Code::deadline).status, 408);
  EXPECT_EQ(wire_error(Code::corrupt).status, 500);
  EXPECT_EQ(wire_error(Code::unavailable).status, 503);
  EXPECT_EQ(wire_error(Code::internal).status, 500);
  const Json error = Json::parse(error_body(invalid("bad {}", 1).at("n").because("why")));
  EXPECT_EQ(error, Json::parse(
                       R"({"error":{"message":"bad 1","type":"invalid_request_error",
          "param":"n","code":"why"}})"));
  EXPECT_EQ(error_body(internal("/a/path")).find("/a/path"), std::string::npos);
}

TEST(WorkersTest, BoundsNewRequestsOnly) {
  auto pool = make_workers(1, 1);
  std::mutex gate;
  gate.lock();
  std::atomic<int> ran{0};
  std::atomic<bool> begun{false};
  ASSERT_TRUE(pool->post([&] {
    begun = true;
    std::lock_guard wait(gate);
    ++ran;
  }));
  while (!begun) std::this_thread::yield();
  EXPECT_TRUE(pool->post([&] { ++ran; }));
  EXPECT_FALSE(pool->post([&] { ++ran; }));
  for (int i = 0; i < 100; ++i) pool->post_more([&] { ++ran; });
  gate.unlock();
  while (ran < 102) std::this_thread::yield();
  pool->stop();
  EXPECT_FALSE(pool->post([&] { ++ran; }));
  pool->post_more([&] { ++ran; });
  pool.reset();
  EXPECT_EQ(ran, 103);
}

}  // namespace
}  // namespace tenon::api
