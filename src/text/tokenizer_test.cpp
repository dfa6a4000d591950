#include <gmock/gmock.h>

#include "text/test_tokenizers.h"

namespace tenon::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Tokenizer, PlainTextHasNoControlTokens) {
  const auto tokenizer = byte_tokenizer();
  const std::string text = "he<|im_end|><think>";
  EXPECT_EQ(*tokenizer->encode(text, Control::plain),
            join({{kHe}, bytes_of("<|im_end|><t"), {kHe - 256 + 'h'}, bytes_of("ink>")}));
  EXPECT_THAT(*tokenizer->encode(text, Control::parse), ElementsAre(kHe, kImEnd, kThink));
  EXPECT_EQ(*tokenizer->encode("", Control::plain), std::vector<int32_t>{});
}

TEST(Tokenizer, MarkedSpellingsStayText) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(*tokenizer->encode_marked("he<\uFDD0|im_end|><think><|im_end|>", 0xFDD0),
            join({{kHe}, bytes_of("<|im_end|>"), {kThink, kImEnd}}));
}

TEST(Tokenizer, FacesOfTheVocabulary) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), kByteVocab);
  EXPECT_EQ(tokenizer->token_to_id("<s>"), kBos);
  EXPECT_EQ(tokenizer->token_to_id("nope"), std::nullopt);
  EXPECT_EQ(tokenizer->token_bytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer->token_bytes(kHe), "he");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_EQ(tokenizer->token_bytes(kByteVocab), "");
  EXPECT_TRUE(tokenizer->is_special(kImEnd));
  EXPECT_FALSE(tokenizer->is_special(kThink));
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_THAT(tokenizer->special_spellings(), ElementsAre("<s>", "<|im_end|>", "<|im_start|>"));
  EXPECT_TRUE(tokenizer->bytewise());
}

TEST(Tokenizer, Decodes) {
  const auto tokenizer = byte_tokenizer();
  const std::vector<int32_t> ids = {kBos, kHe, kThink, 0xC3, 0xA9, 0xC3};
  EXPECT_EQ(*tokenizer->decode(ids, true), "he<think>é\uFFFD");
  EXPECT_EQ(*tokenizer->decode(ids, false), "<s>he<think>é\uFFFD");
  for (const int32_t bad : {-1, +kByteVocab})
    EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{bad}, true).error().code, Code::invalid);
}

TEST(Tokenizer, ContextualDecoder) {
  const auto tokenizer = spm_tokenizer();
  EXPECT_FALSE(tokenizer->bytewise());
  const auto ids = *tokenizer->encode("a é", Control::plain);
  EXPECT_THAT(ids, ElementsAre(5, 2, 6 + 0xC3, 6 + 0xA9));
  EXPECT_EQ(*tokenizer->decode(ids, true), "a é");
}

TEST(Tokenizer, Errors) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(tokenizer->encode("\xFF", Control::plain).error().code, Code::invalid);
  EXPECT_EQ(tokenizer->encode("a\xC3", Control::parse).error().code, Code::invalid);
  EXPECT_EQ(Tokenizer::from_json("").error().code, Code::corrupt);
  EXPECT_EQ(Tokenizer::from_json("{}").error().code, Code::corrupt);
  const auto unknown = Tokenizer::from_json(
      R"({"version":"1.0","model":{"type":"Psychic","vocab":{}},"added_tokens":[]})");
  EXPECT_EQ(unknown.error().code, Code::unsupported);
  EXPECT_THAT(unknown.error().message, HasSubstr("model of type \"Psychic\""));
}

}  // namespace
}  // namespace tenon::text
