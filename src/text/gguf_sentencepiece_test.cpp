// SentencePiece vocabularies from GGUF: which neighbours are joined, spaces, bytes, and damage.
#include <gmock/gmock.h>

#include "text/gguf_vocab.h"
#include "text/test_tokenizers.h"

namespace tenon::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Ids: 0 <unk>, 1 <s>, 2 </s>, 3 to 258 the bytes, then these in order.
constexpr int32_t kFirst = 259;
enum Word : int32_t { kSpace = kFirst, kA, kB, kC, kAb, kBc, kAbc, kSpaceA, kTag };

GgufVocab sentences() {
  GgufVocab v;
  v.model = "llama";
  const auto add = [&](std::string token, int32_t type, float score) {
    v.tokens.push_back(std::move(token));
    v.token_types.push_back(type);
    v.scores.push_back(score);
  };
  add("<unk>", kUnknown, 0);
  add("<s>", kControl, 0);
  add("</s>", kControl, 0);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 6, 0);
  add("\u2581", kNormal, -1);
  for (const char* letter : {"a", "b", "c"}) add(letter, kNormal, -2);
  add("ab", kNormal, -20);
  add("bc", kNormal, -10);  // better than ab: joined first
  add("abc", kNormal, -30);
  add("\u2581a", kNormal, -5);
  add("<tag>", kUserDefined, 0);
  v.bos_id = 1, v.eos_id = 2, v.unk_id = 0;
  v.add_space_prefix = false;
  return v;
}

std::vector<int32_t> encode(const GgufVocab& vocab, std::string_view text) {
  return *must(Tokenizer::from_gguf(vocab))->encode(text, Control::parse);
}

TEST(GgufSentencePiece, TheBestScoreIsJoinedFirst) {
  const GgufVocab v = sentences();
  EXPECT_THAT(encode(v, "ab"), ElementsAre(kAb));
  EXPECT_THAT(encode(v, "abc"), ElementsAre(kAbc));  // a + bc, which has a merge of its own
  GgufVocab short_of_abc = v;
  short_of_abc.tokens[kAbc] = "ca";
  EXPECT_THAT(encode(short_of_abc, "abc"), ElementsAre(kA, kBc));
  EXPECT_THAT(encode(v, "c a"), ElementsAre(kC, kSpaceA));
}

TEST(GgufSentencePiece, SpacesAndTheirPrefix) {
  GgufVocab v = sentences();
  EXPECT_THAT(encode(v, "a"), ElementsAre(kA));
  EXPECT_THAT(encode(v, "  "), ElementsAre(kSpace, kSpace));
  v.add_space_prefix.reset();  // the default puts one in front
  EXPECT_THAT(encode(v, "a"), ElementsAre(kSpaceA));
  const auto tokenizer = must(Tokenizer::from_gguf(v));
  EXPECT_EQ(*tokenizer->decode(std::vector<int32_t>{kSpaceA, kB}, true), "ab");
}

TEST(GgufSentencePiece, WhatIsNoTokenBecomesBytes) {
  const GgufVocab v = sentences();
  EXPECT_THAT(encode(v, "a\u00e9"), ElementsAre(kA, 3 + 0xC3, 3 + 0xA9));
  const auto tokenizer = must(Tokenizer::from_gguf(v));
  EXPECT_EQ(*tokenizer->decode(encode(v, "a\u00e9b\U0001F642"), true), "a\u00e9b\U0001F642");
  TextStream stream(tokenizer);
  std::string text;
  for (const int32_t id : encode(v, "\U0001F642 a")) text += stream.push(id);
  EXPECT_EQ(text + stream.flush(), "\U0001F642 a");
}

TEST(GgufSentencePiece, TokensOfTheUser) {
  EXPECT_THAT(encode(sentences(), "a<tag>b"), ElementsAre(kA, kTag, kB));
  EXPECT_THAT(*must(Tokenizer::from_gguf(sentences()))->encode_with_specials("a"),
              ElementsAre(1, kA));
}

TEST(GgufSentencePiece, DamageIsNamed) {
  const auto error = [](auto edit) {
    GgufVocab v = sentences();
    edit(v);
    return Tokenizer::from_gguf(v).error();
  };
  const auto cut = error([](GgufVocab& v) { v.scores.pop_back(); });
  EXPECT_EQ(cut.code, Code::corrupt);
  EXPECT_THAT(cut.message, HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(error([](GgufVocab& v) { v.scores[kAb] = NAN; }).message, HasSubstr("263"));
  const auto wide = error([](GgufVocab& v) { v.tokens[kAb] = std::string(5000, 'a'); });
  EXPECT_EQ(wide.code, Code::unsupported);
  EXPECT_THAT(wide.message, HasSubstr("5000 bytes"));
}

}  // namespace
}  // namespace tenon::text
