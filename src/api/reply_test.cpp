// Replies: OpenAI's shapes, stream equals whole, stops, counts, errors, leaving.
#include "api/test_reply.h"

namespace tenon::api {
namespace {

using ReplyTest = ApiTest;

std::string joined(const std::vector<Json>& all, int index) {
  std::string text;
  for (const Json& event : all)
    if (event.is_object())
      for (const Json& choice : event["choices"])
        if (choice["index"] == index && choice.contains("delta"))
          text += choice["delta"].value("content", "");
  return text;
}

TEST_F(ReplyTest, StreamShape) {
  const auto reply =
      chat("hello", R"("stream":true,"stream_options":{"include_usage":true},"seed":3)");
  EXPECT_EQ(reply->header("content-type"), "text/event-stream; charset=utf-8");
  const auto all = events(reply->body);
  ASSERT_GE(all.size(), 5u);
  EXPECT_EQ(all[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(all[0]["choices"][0]["delta"], Json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(all[0]["seed"], 3);
  EXPECT_FALSE(all[1].contains("seed"));
  EXPECT_TRUE(all[1]["usage"].is_null());
  const size_t end = all.size();
  EXPECT_EQ(all[end - 1], "[DONE]");
  EXPECT_EQ(all[end - 2]["choices"], Json::array());
  EXPECT_EQ(all[end - 2]["usage"]["completion_tokens"], 4);  // he ll o end
  EXPECT_EQ(all[end - 3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(all[end - 3]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(joined(all, 0), "hello");
  const auto plain = events(chat("hello", R"("stream":true)")->body);
  for (const Json& event : plain) EXPECT_FALSE(event.contains("usage"));
}

TEST_F(ReplyTest, StreamEqualsWhole) {
  const std::string say = "👩🏽‍🚀 漢 é hello ABCDEFGHIJ";
  for (const char* rest :
       {R"("seed":1)", R"("stop":"DEFGHIJ")", R"("stop":["Q","DEF"])", R"("stop":"DEX")",
        R"("max_tokens":2)", R"("max_tokens":9,"n":2)", R"("stop":"漢","logprobs":true)"}) {
    const Json whole = Json::parse(chat(say, rest)->body);
    const std::string stream = R"("stream":true,"stream_options":{"include_usage":true},)";
    const auto all = events(chat(say, stream + rest)->body);
    for (const Json& choice : whole["choices"])
      EXPECT_EQ(joined(all, choice["index"]), choice["message"]["content"]) << rest;
    const Json& usage = all[all.size() - 2]["usage"];
    EXPECT_EQ(usage["completion_tokens"], whole["usage"]["completion_tokens"]) << rest;
    EXPECT_EQ(usage["prompt_tokens"], whole["usage"]["prompt_tokens"]) << rest;
  }
}

TEST_F(ReplyTest, Stops) {
  const Json body = Json::parse(chat("xABCDEFGz", R"("stop":"CDEF")")->body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "xAB");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);  // x A B C DE FG
  const Json held = Json::parse(chat("abcdef", R"("stop":"efg","max_tokens":6)")->body);
  EXPECT_EQ(held["choices"][0]["message"]["content"], "abcdef");
  EXPECT_EQ(held["choices"][0]["finish_reason"], "length");
}

TEST_F(ReplyTest, Logprobs) {
  const Json body =
      Json::parse(chat("h漢CDEF", R"("logprobs":true,"top_logprobs":2,"stop":"DE")")->body);
  const Json& content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 5u) << content.dump();  // h, three bytes, C; nothing of the stop
  std::string bytes;
  for (const Json& token : content)
    for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
  EXPECT_EQ(bytes, "h漢C");
  EXPECT_EQ(content[1]["token"], "\uFFFD");
  EXPECT_EQ(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"]);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);

  const Json legacy =
      Json::parse(complete("[[say 漢ab]]", R"("logprobs":1)")->body)["choices"][0]["logprobs"];
  EXPECT_EQ(legacy["tokens"].size(), 5u);
  EXPECT_EQ(legacy["text_offset"], Json::parse("[0,1,1,1,2]"));
  EXPECT_EQ(legacy["top_logprobs"].size(), 5u);

  const auto all = events(chat("h漢C", R"("logprobs":true,"stream":true)")->body);
  size_t streamed = 0;
  for (const Json& event : all)
    if (event.is_object() && event["choices"][0]["logprobs"].is_object())
      streamed += event["choices"][0]["logprobs"]["content"].size();
  EXPECT_EQ(streamed, 5u);
}

TEST_F(ReplyTest, SeedsAndChoices) {
  const auto ask = [&](const char* rest) { return Json::parse(complete("free", rest)->body); };
  const Json a = ask(R"("n":3,"seed":1,"max_tokens":20)"),
             b = ask(R"("n":3,"seed":1,"max_tokens":20)");
  EXPECT_EQ(a["choices"], b["choices"]);
  EXPECT_NE(a["choices"][0]["text"], a["choices"][1]["text"]);
  EXPECT_EQ(a["usage"]["prompt_tokens"], 4);
  const Json c = ask(R"("max_tokens":20)"), d = ask(R"("max_tokens":20)");
  EXPECT_NE(c["seed"], d["seed"]);
  const Json again =
      ask(fmt::format("\"max_tokens\":20,\"seed\":{}", c["seed"].get<uint64_t>()).c_str());
  EXPECT_EQ(again["choices"], c["choices"]);
}

TEST_F(ReplyTest, CachedTokens) {
  const std::string prompt(40, 'p');
  EXPECT_EQ(Json::parse(complete(prompt)->body)["usage"]["prompt_tokens_details"]["cached_tokens"],
            0);
  EXPECT_EQ(Json::parse(complete(prompt)->body)["usage"]["prompt_tokens_details"]["cached_tokens"],
            32);
}

TEST_F(ReplyTest, TooLongComesBeforeTheStream) {
  for (const char* stream : {"false", "true"}) {
    const auto reply = complete(std::string(257, 'x'), std::string("\"stream\":") + stream);
    EXPECT_EQ(reply->status, 400);
    EXPECT_EQ(Json::parse(reply->body)["error"]["code"], "context_length_exceeded");
    EXPECT_NE(reply->body.find("257"), std::string::npos);
    EXPECT_NE(reply->body.find("256"), std::string::npos);
  }
  const Json body =
      Json::parse(complete(std::string(250, 'x'), R"("max_tokens":50,"ignore_eos":true)")->body);
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
}

TEST_F(ReplyTest, Failures) {
  const auto whole = complete("[[fail 3]]");
  EXPECT_EQ(whole->status, 500);
  EXPECT_EQ(whole->body.find("as asked"), std::string::npos);  // details stay in the log
  const auto stream = complete("[[fail 3]]", R"("stream":true)");
  EXPECT_EQ(stream->status, 200);
  const auto all = events(stream->body);
  EXPECT_EQ(all.back()["error"]["type"], "server_error");
  const auto refused = complete("[[refuse]]", R"("stream":true)");
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->header("retry-after"), "1");
  // One of several refused: the others are cancelled.
  EXPECT_EQ(call("/v1/completions", R"({"prompt":["a","[[refuse]]"],"ignore_eos":true})")->status,
            429);
}

TEST_F(ReplyTest, Progress) {
  const auto all = events(complete(std::string(70, 'q'), R"("stream":true,"max_tokens":1,
    "stream_options":{"include_progress":true})")
                              ->body);
  EXPECT_EQ(all[0]["prompt_progress"], Json::parse(R"({"index":0,"processed":32,"total":70})"));
  EXPECT_EQ(all[0]["choices"], Json::array());
  EXPECT_EQ(all[2]["prompt_progress"]["processed"], 70);
}

TEST_F(ReplyTest, LeavingFreesTheRows) {
  fake::FakeOptions slow;
  slow.token_ms = 20;  // five seconds to the end of the window
  restart(slow);
  for (const char* stream : {"true", "false"}) {
    const auto reply =
        begin("/v1/completions",
              std::string(R"({"prompt":"x","n":2,"ignore_eos":true,"stream":)") + stream + "}");
    while (engine->stats().running < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    reply->leave();
    const auto start = std::chrono::steady_clock::now();
    while (engine->stats().running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  }
  EXPECT_EQ(engine->stats().cancelled, 4u);
}

TEST_F(ReplyTest, ManyAtOnce) {
  std::vector<std::shared_ptr<TestResponse>> replies;
  for (int i = 0; i < 40; ++i)
    replies.push_back(
        begin("/v1/completions", fmt::format(R"({{"prompt":"[[say word{}]]","stream":true}})", i)));
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(replies[i]->wait());
    std::string text;
    for (const Json& event : events(replies[i]->body))
      if (event.is_object()) text += event["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(text, fmt::format("word{}", i));
  }
}

}  // namespace
}  // namespace tenon::api
