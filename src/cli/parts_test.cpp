// The parts behind the verbs: key files, transcripts, message reading, streaming, bench.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/bench_run.h"
#include "cli/chat_session.h"
#include "cli/json_table.h"
#include "cli/key_file.h"
#include "cli/line_reader.h"
#include "cli/terminal.h"
#include "cli/transcript.h"

namespace tenon::cli {
namespace {

std::string temp(const std::string& name) { return testing::TempDir() + "/cli_parts_" + name; }

// Ids are the characters of their text; the reply is a fixed word, then the end id 0.
class LetterTokenizer : public text::Tokenizer {
 public:
  Result<std::vector<int32_t>> encode(std::string_view text, text::Control) const override {
    return std::vector<int32_t>(text.begin(), text.end());
  }
  Result<std::vector<int32_t>> encode_with_specials(std::string_view text) const override {
    return encode(text, text::Control::parse);
  }
  Result<std::string> decode(std::span<const int32_t> ids, bool) const override {
    return std::string(ids.begin(), ids.end());
  }
  Result<std::vector<int32_t>> encode_marked(std::string_view text, char32_t) const override {
    return encode(text, text::Control::parse);
  }
  std::span<const std::string> special_spellings() const override { return {}; }
  bool bytewise() const override { return true; }
  int32_t vocab_size() const override { return 128; }
  std::optional<int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string_view token_bytes(int32_t id) const override {
    static const std::string kAll = [] {
      std::string all;
      for (int c = 0; c < 128; ++c) all.push_back(static_cast<char>(c));
      return all;
    }();
    return std::string_view(kAll).substr(static_cast<size_t>(id), 1);
  }
  bool is_special(int32_t id) const override { return id == 0; }
};

class FakeEngine : public engine::Engine {
 public:
  FakeEngine() {
    auto model = std::make_shared<engine::Model>();
    model->name = "fake";
    model->context_len = 100;
    model->vocab_size = 128;
    model->tokenizer = std::make_shared<LetterTokenizer>();
    model_ = model;
  }
  std::vector<std::shared_ptr<const engine::Model>> models() const override { return {model_}; }
  Result<std::shared_ptr<const engine::Model>> model(std::string_view) const override {
    return model_;
  }
  Result<std::shared_ptr<engine::Generation>> submit(engine::GenerationRequest request) override {
    if (request.prompt_ids.empty()) return invalid("empty prompt");
    last = request;
    auto generation = std::make_shared<engine::Generation>(1000, request.on_event);
    auto push = [&](engine::Event event) { EXPECT_TRUE(generation->events.push(event)); };
    push(engine::Progress{1, 2});
    int drawn = 0;
    for (char c : reply.substr(0, static_cast<size_t>(request.max_tokens))) {
      push(engine::Token{c, false, 0, {}});
      ++drawn;
    }
    engine::Finished finished;
    finished.reason = fail ? FinishReason::error : FinishReason::stop;
    finished.error = internal("broken");
    finished.usage = {static_cast<int>(request.prompt_ids.size()), drawn, 0};
    push(finished);
    return generation;
  }
  engine::Stats stats() const override { return {}; }
  void drain(int64_t) override {}

  std::shared_ptr<const engine::Model> model_;
  std::string reply = "hello world";
  bool fail = false;
  engine::GenerationRequest last;
};

TEST(KeyFile, NamesSecretsAndComments) {
  auto keys = parse_keys("# team\nalice: s3cret\n\n  plain \r\n", "k");
  ASSERT_TRUE(keys.ok());
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].name, "alice");
  EXPECT_EQ((*keys)[0].secret, "s3cret");
  EXPECT_EQ((*keys)[1].name, "key4");
  EXPECT_EQ((*keys)[1].secret, "plain");
}

TEST(KeyFile, ErrorsNameTheLineAndNotTheSecret) {
  auto bad = parse_keys("ok\nname:\n", "k");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("line 2"), std::string::npos);
  bad = parse_keys("hush hush\n", "k");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message.find("hush"), std::string::npos);
  EXPECT_FALSE(parse_keys("# none\n", "k").ok());
  EXPECT_FALSE(parse_keys("a:1\na:2\n", "k").ok());
  EXPECT_FALSE(read_key_file("/nowhere/keys").ok());
}

TEST(Transcript, SystemStaysAndFilesRoundTrip) {
  Transcript one;
  one.add("user", "hi");
  one.set_system("be brief");
  one.add("assistant", "yes\n\"quoted\"");
  ASSERT_EQ(one.messages().size(), 3u);
  ASSERT_TRUE(one.save(temp("chat.json")).ok());
  Transcript two;
  ASSERT_TRUE(two.load(temp("chat.json")).ok());
  EXPECT_EQ(one.messages(), two.messages());
  two.clear();
  EXPECT_EQ(two.messages().size(), 1u);
  EXPECT_EQ(two.system(), "be brief");
  std::ofstream(temp("bad.json")) << R"([{"role":"tool","content":"x"}])";
  Status bad = two.load(temp("bad.json"));
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("messages[0]"), std::string::npos);
  EXPECT_EQ(two.system(), "be brief") << "a failed load changes nothing";
}

class ScriptReader : public LineReader {
 public:
  explicit ScriptReader(std::vector<std::string> script, int pasted = 0)
      : script_(std::move(script)), pasted_(pasted) {}
  ReadStatus read(std::string* line, bool) override {
    if (at_ == script_.size()) return ReadStatus::end;
    *line = script_[at_++];
    return ReadStatus::line;
  }
  bool has_pending() override { return static_cast<int>(at_) < pasted_; }
  void remember(const std::string&) override {}

 private:
  std::vector<std::string> script_;
  size_t at_ = 0;
  int pasted_;
};

std::string message_of(std::vector<std::string> script, int pasted = 0) {
  ScriptReader reader(std::move(script), pasted);
  std::string message;
  return read_message(reader, &message) == ReadStatus::line ? message : "(none)";
}

TEST(ReadMessage, LinesBlocksBackslashesAndPastes) {
  EXPECT_EQ(message_of({"one", "two"}), "one");
  EXPECT_EQ(message_of({"one\\", "two\\", "three", "four"}), "one\ntwo\nthree");
  EXPECT_EQ(message_of({"\"\"\"", "one", "", "two\"\"\"", "three"}), "one\n\ntwo");
  EXPECT_EQ(message_of({"\"\"\"one\"\"\""}), "one");
  EXPECT_EQ(message_of({"a", "b", "c"}, 2), "a\nb");
  EXPECT_EQ(message_of({}), "(none)");
}

TEST(StreamReply, TextStopsAndErrors) {
  FakeEngine engine;
  std::string shown;
  auto on_text = [&shown](std::string_view delta) {
    shown += delta;
    return true;
  };
  auto request = [&] { return make_request(*engine.model_, {1, 2, 3}, {}, 0); };
  auto reply = stream_reply(engine, *engine.model_, request(), {}, on_text);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->text, "hello world");
  EXPECT_EQ(shown, "hello world");
  EXPECT_EQ(engine.last.max_tokens, 97) << "the rest of the window";
  shown.clear();
  reply = stream_reply(engine, *engine.model_, request(), {"o w"}, on_text);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(shown, "hell");
  EXPECT_EQ(reply->reason, FinishReason::stop);
  EXPECT_FALSE(reply->interrupted);
  engine.fail = true;
  EXPECT_EQ(stream_reply(engine, *engine.model_, request(), {}, on_text).error().message, "broken");
}

TEST(StreamReply, AGoneOutputInterrupts) {
  FakeEngine engine;
  auto reply = stream_reply(engine, *engine.model_, make_request(*engine.model_, {1}, {}, 5), {},
                            [](std::string_view) { return false; });
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->interrupted);
}

TEST(ChatSession, CommandsThatNeedNoModel) {
  FakeEngine engine;
  ChatSession session(engine, engine.model_);
  EXPECT_TRUE(session.handle("/system be kind"));
  EXPECT_EQ(session.transcript().system(), "be kind");
  EXPECT_TRUE(session.handle("/system -"));
  EXPECT_EQ(session.transcript().system(), "");
  EXPECT_TRUE(session.handle("/params temperature 0.3"));
  EXPECT_TRUE(session.handle("/params seed 5"));
  EXPECT_TRUE(session.handle("/params nonsense 1"));
  EXPECT_TRUE(session.handle("/load /nowhere"));
  EXPECT_TRUE(session.handle("/helpp"));
  EXPECT_TRUE(session.handle("   "));
  EXPECT_TRUE(session.transcript().messages().empty());
  EXPECT_FALSE(session.handle("/exit"));
}

TEST(Bench, MediansAndEvents) {
  Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(spread_of({1, 2, 3, 10}).median, 2.5);
  FakeEngine engine;
  auto sample = bench_once(engine, *engine.model_, {7, 11, 3}, 1);
  ASSERT_TRUE(sample.ok());
  EXPECT_GT(sample->prefill_tok_s, 0);
  EXPECT_GT(sample->ttft_ms, 0);
  EXPECT_EQ(engine.last.prompt_ids.size(), 7u);
  EXPECT_TRUE(engine.last.ignore_end);
  engine.fail = true;
  EXPECT_FALSE(bench_once(engine, *engine.model_, {7, 11, 1}, 1).ok());
}

TEST(JsonTable, ReadsLikeAList) {
  Json info = {{"name", "x"},
               {"bytes", 1234567},
               {"ok", true},
               {"run", {{"dtype", "float32"}}},
               {"reasons", {"a long reason", "another one"}}};
  EXPECT_EQ(json_table(info),
            "name     x\nbytes    1,234,567\nok       yes\nrun\n  dtype  float32\n"
            "reasons  a long reason\n         another one\n");
}

}  // namespace
}  // namespace tenon::cli
