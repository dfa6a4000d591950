// One row per request field and mistake: a 400 that names the field, before anything is generated.
#include "api/test_reply.h"

namespace tenon::api {
namespace {

struct Bad {
  const char* field;  // what error.param must say
  const char* json;   // members of the request
};

const Bad kBadOnBoth[] = {
    {"temperature", R"("temperature":"1")"},
    {"temperature", R"("temperature":5.1)"},
    {"temperature", R"("temperature":-0.1)"},
    {"top_p", R"("top_p":0)"},
    {"top_p", R"("top_p":1.01)"},
    {"top_p", R"("top_p":[1])"},
    {"top_k", R"("top_k":1.5)"},
    {"top_k", R"("top_k":-2)"},
    {"min_p", R"("min_p":2)"},
    {"xtc_probability", R"("xtc_probability":true)"},
    {"xtc_threshold", R"("xtc_threshold":-1)"},
    {"repetition_penalty", R"("repetition_penalty":-1)"},
    {"repetition_context_size", R"("repetition_context_size":0)"},
    {"presence_penalty", R"("presence_penalty":2.5)"},
    {"presence_context_size", R"("presence_context_size":"20")"},
    {"frequency_penalty", R"("frequency_penalty":-2.5)"},
    {"frequency_context_size", R"("frequency_context_size":{})"},
    {"logit_bias", R"("logit_bias":[])"},
    {"logit_bias", R"("logit_bias":{"x":1})"},
    {"logit_bias", R"("logit_bias":{"263":1})"},
    {"logit_bias", R"("logit_bias":{"1":101})"},
    {"logit_bias", R"("logit_bias":{"1":null})"},
    {"seed", R"("seed":1.5)"},
    {"seed", R"("seed":"1")"},
    {"seed", R"("seed":18446744073709551616)"},
    {"stop", R"("stop":"")"},
    {"stop", R"("stop":["a",""])"},
    {"stop", R"("stop":5)"},
    {"stop",
     R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"},
    {"max_tokens", R"("max_tokens":0)"},
    {"max_tokens", R"("max_tokens":-1)"},
    {"max_tokens", R"("max_tokens":1.5)"},
    {"max_tokens", R"("max_tokens":"5")"},
    {"max_completion_tokens", R"("max_completion_tokens":0)"},
    {"max_completion_tokens", R"("max_completion_tokens":3,"max_tokens":4)"},
    {"n", R"("n":0)"},
    {"n", R"("n":17)"},
    {"n", R"("n":"2")"},
    {"stream", R"("stream":"true")"},
    {"stream_options", R"("stream":true,"stream_options":1)"},
    {"stream_options", R"("stream_options":{"include_usage":true})"},
    {"stream_options.include_usage", R"("stream":true,"stream_options":{"include_usage":1})"},
    {"stream_options.x", R"("stream":true,"stream_options":{"x":1})"},
    {"ignore_eos", R"("ignore_eos":1)"},
    {"user", R"("user":5)"},
    {"metadata", R"("metadata":"x")"},
    {"model", R"("model":5)"},
    {"response_format", R"("response_format":{"type":"json_object"})"},
    {"tools", R"("tools":[{"type":"function"}])"},
    {"guided_regex", R"("guided_regex":"a")"},
    {"no_such_field", R"("no_such_field":1)"},
};
const Bad kBadOnChat[] = {
    {"logprobs", R"("logprobs":3)"},
    {"top_logprobs", R"("top_logprobs":3)"},
    {"top_logprobs", R"("logprobs":true,"top_logprobs":21)"},
    {"tool_choice", R"("tool_choice":"auto")"},
    {"modalities", R"("modalities":["text","audio"])"},
    {"chat_template_kwargs", R"("chat_template_kwargs":[])"},
    {"chat_template_kwargs.messages", R"("chat_template_kwargs":{"messages":[]})"},
    {"continue_final_message", R"("continue_final_message":true)"},
    {"continue_final_message", R"("continue_final_message":true,"add_generation_prompt":true)"},
    {"prompt", R"("prompt":"x")"},
    {"echo", R"("echo":false)"},
};
const Bad kBadOnCompletions[] = {
    {"logprobs", R"("logprobs":true)"},
    {"logprobs", R"("logprobs":21)"},
    {"top_logprobs", R"("top_logprobs":1)"},
    {"best_of", R"("best_of":3)"},
    {"echo", R"("echo":true)"},
    {"suffix", R"("suffix":"x")"},
    {"messages", R"("messages":[])"},
};

class FieldsTest : public ApiTest {
 protected:
  void refused(const std::string& path, const std::string& start, const Bad& bad) {
    const auto reply = call(path, start + bad.json + "}");
    ASSERT_EQ(reply->status, 400) << bad.json << reply->body;
    const Json error = Json::parse(reply->body)["error"];
    EXPECT_EQ(error["param"], bad.field) << bad.json << reply->body;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_NE(error["message"].get<std::string>().find(std::string(bad.field).substr(0, 3)),
              std::string::npos);
  }
  const std::string kChat = R"({"messages":[{"role":"user","content":"hi"}],)";
  const std::string kPrompt = R"({"prompt":"hi",)";
};

TEST_F(FieldsTest, WrongOnesAreNamed) {
  for (const Bad& bad : kBadOnBoth) refused("/v1/chat/completions", kChat, bad);
  for (const Bad& bad : kBadOnChat) refused("/v1/chat/completions", kChat, bad);
  for (const Bad& bad : kBadOnBoth) refused("/v1/completions", kPrompt, bad);
  for (const Bad& bad : kBadOnCompletions) refused("/v1/completions", kPrompt, bad);
  EXPECT_EQ(engine->stats().requests, 0u);
}

TEST_F(FieldsTest, EveryGoodOneIsTaken) {
  const auto reply = chat("ok", R"("model":"fake","temperature":5,"top_p":1,"top_k":-1,"min_p":0.5,
    "xtc_probability":0,"xtc_threshold":0.1,"repetition_penalty":0.01,"repetition_context_size":20,
    "presence_penalty":-2,"frequency_penalty":2,"logit_bias":{"5":-100.0},"seed":-1,"stop":null,
    "max_tokens":2147483648,"max_completion_tokens":null,"n":1,"logprobs":true,"top_logprobs":20,
    "stream":false,"stream_options":null,"ignore_eos":false,"tools":[],"tool_choice":"none",
    "response_format":{"type":"text"},"modalities":["text"],"chat_template_kwargs":{"x":1},
    "user":"u","store":false,"metadata":{})");
  ASSERT_EQ(reply->status, 200) << reply->body;
  EXPECT_EQ(reply->header("x-tenon-ignored-fields"), "user, store, metadata");
  const Json body = Json::parse(reply->body);
  EXPECT_EQ(body["seed"], 18446744073709551615ull);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "ok");
}

TEST_F(FieldsTest, Bodies) {
  for (const char* body : {"", "{", "[]", "1", "\"x\"", "{\"messages\":\"\xff\"}",
                           "{\"a\":\"\\ud800\"}", "{\"a\":NaN}", "{\"temperature\":1e999}"}) {
    const auto reply = call("/v1/chat/completions", body);
    EXPECT_EQ(reply->status, 400) << body;
    EXPECT_TRUE(Json::parse(reply->body)["error"]["message"].is_string());
  }
  EXPECT_EQ(call("/v1/chat/completions", "{\"tools\":" + std::string(3000, '['))->status, 400);
  std::string keys = "{";
  for (int i = 0; i < 2000; ++i) keys += fmt::format("\"k{}\":1,", i);
  EXPECT_EQ(call("/v1/completions", keys + "\"prompt\":\"x\"}")->status, 400);
}

TEST_F(FieldsTest, Models) {
  const std::string messages = R"("messages":[{"role":"user","content":"[[say ok]]"}])";
  for (const std::string& name : {std::string("no-such"), std::string(), std::string("../../etc"),
                                  std::string("a\0b", 3), std::string(10000, 'x')}) {
    const auto reply =
        call("/v1/chat/completions", "{\"model\":" + dump_json(Json(name)) + "," + messages + "}");
    EXPECT_EQ(reply->status, 404) << name;
    EXPECT_EQ(Json::parse(reply->body)["error"]["code"], "model_not_found");
    EXPECT_LT(reply->body.size(), 400u);
  }
  context.single_model_alias = true;
  const auto reply = call("/v1/chat/completions", "{\"model\":\"gpt-4\"," + messages + "}");
  EXPECT_EQ(Json::parse(reply->body)["model"], "fake");
}

TEST_F(FieldsTest, Messages) {
  const Bad bad[] = {
      {"messages", R"("messages":[])"},
      {"messages", R"("messages":"x")"},
      {"messages", R"("user":"u")"},
      {"messages[0]", R"("messages":[1])"},
      {"messages[0].role", R"("messages":[{"content":"x"}])"},
      {"messages[0].role", R"("messages":[{"role":"alien","content":"x"}])"},
      {"messages[0].content", R"("messages":[{"role":"user","content":null}])"},
      {"messages[0].content", R"("messages":[{"role":"user","content":[]}])"},
      {"messages[0].content", R"("messages":[{"role":"user","content":{"a":1}}])"},
      {"messages[0].content[1].type",
       R"("messages":[{"role":"user",
          "content":[{"type":"text","text":"x"},{"type":"image_url"}]}])"},
      {"messages[0].content[0].text",
       R"("messages":[{"role":"user","content":[{"type":"text"}]}])"},
      {"messages[0].tool_calls", R"("messages":[{"role":"user","content":"x","tool_calls":[]}])"},
      {"messages[0].x", R"("messages":[{"role":"user","content":"x","x":1}])"},
  };
  for (const Bad& row : bad) refused("/v1/chat/completions", "{", row);
  const auto raised = call("/v1/chat/completions",
                           R"({"stream":true,"messages":[{"role":"assistant","content":"x"}]})");
  EXPECT_EQ(raised->status, 400);
  EXPECT_NE(raised->body.find("must not begin with the assistant"), std::string::npos)
      << raised->body;
  const auto parts =
      call("/v1/chat/completions",
           R"({"messages":[{"role":"developer","content":"d"},{"role":"user","content":
                          [{"type":"text","text":"[[say a"},{"type":"text","text":"b]]"}]}]})");
  EXPECT_EQ(Json::parse(parts->body)["choices"][0]["message"]["content"], "ab") << parts->body;
}

TEST_F(FieldsTest, TextNeverBecomesControlTokens) {
  const auto count = [&](const char* content) {
    Json body{{"max_tokens", 1}};
    body["messages"].push_back({{"role", "user"}, {"content", content}});
    return Json::parse(
               call("/v1/chat/completions", dump_json(body))->body)["usage"]["prompt_tokens"]
        .get<int>();
  };
  EXPECT_EQ(count("<|im_end|>"), count("aaaaaaaaaa"));
  // Raw completions parse them.
  EXPECT_EQ(
      Json::parse(complete("<|im_end|>", R"("max_tokens":1)")->body)["usage"]["prompt_tokens"], 1);
}

TEST_F(FieldsTest, Prompts) {
  for (const char* bad :
       {R"("prompt":"")", R"("prompt":[])", R"("prompt":[[]])", R"("prompt":null)",
        R"("prompt":[263])", R"("prompt":[-1])", R"("prompt":[1.5])", R"("prompt":["a",5])",
        R"("prompt":[[1],"a"])", R"("prompt":5)", R"("prompt":{"a":1})", R"("user":"u")"})
    refused("/v1/completions", "{", {"prompt", bad});
  const auto two =
      call("/v1/completions", R"({"prompt":[[65,66],[67]],"n":2,"max_tokens":3,"seed":4})");
  const Json body = Json::parse(two->body);
  ASSERT_EQ(body["choices"].size(), 4u) << two->body;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(body["choices"][i]["index"], i);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
}

}  // namespace
}  // namespace tenon::api
