#include "text/gguf_vocab.h"

#include <gmock/gmock.h>

#include "text/test_tokenizers.h"

namespace tenon::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> encode(const GgufVocab& vocab, std::string_view text) {
  return *must(Tokenizer::from_gguf(vocab))->encode(text, Control::parse);
}

TEST(GgufVocab, TokenTypesDecideWhatIsAdded) {
  GgufVocab vocab = byte_vocab();
  EXPECT_THAT(encode(vocab, "<s>he<think>"), ElementsAre(kBos, kHe, kThink));
  vocab.token_types[kThink] = 1;
  EXPECT_EQ(encode(vocab, "<think>"), bytes_of("<think>"));
  // Without types the named ids are special, and nothing else is added.
  vocab.token_types.clear();
  EXPECT_EQ(encode(vocab, "<s><|im_start|>"), join({{kBos}, bytes_of("<|im_start|>")}));
}

TEST(GgufVocab, RepeatedTokensDecodeButAreNotEncodedTo) {
  GgufVocab vocab = byte_vocab();
  for (const char* again : {"he", "<|im_end|>", "he"}) {
    vocab.tokens.push_back(again);
    vocab.token_types.push_back(vocab.tokens.size() % 2 ? 1 : 3);
  }
  const auto tokenizer = must(Tokenizer::from_gguf(vocab));
  EXPECT_EQ(tokenizer->vocab_size(), kByteVocab + 3);
  EXPECT_THAT(*tokenizer->encode("he<|im_end|>", Control::parse), ElementsAre(kHe, kImEnd));
  EXPECT_EQ(tokenizer->token_bytes(kByteVocab), "he");
  EXPECT_TRUE(tokenizer->is_special(kByteVocab + 1));
  EXPECT_EQ(*tokenizer->decode(std::vector<int32_t>{kByteVocab, kByteVocab + 2}, true), "hehe");
}

TEST(GgufVocab, BosAndEosOnlyWithSpecials) {
  GgufVocab vocab = byte_vocab();
  const auto framed = [&] {
    const auto tokenizer = must(Tokenizer::from_gguf(vocab));
    EXPECT_THAT(*tokenizer->encode("he", Control::parse), ElementsAre(kHe));
    return *tokenizer->encode_with_specials("he");
  };
  EXPECT_THAT(framed(), ElementsAre(kHe));
  vocab.add_bos = true;
  EXPECT_THAT(framed(), ElementsAre(kBos, kHe));
  vocab.add_eos = true;
  EXPECT_THAT(framed(), ElementsAre(kBos, kHe, kImEnd));
  vocab.bos_id.reset();
  EXPECT_THAT(framed(), ElementsAre(kHe, kImEnd));
}

TEST(GgufVocab, SplitRules) {
  GgufVocab vocab = byte_vocab();
  // Each candidate word of the text is one token if and only if the rule keeps it whole.
  for (const char* word : {"12", "123", "'S"}) vocab.tokens.push_back(word);
  for (const char* merge : {"1 2", "12 3", "' S"}) vocab.merges.push_back(merge);
  vocab.token_types.clear();
  const auto with = [&](const char* pre, std::string_view text) {
    vocab.pre = pre;
    return encode(vocab, text).size();
  };
  for (const char* pre : {"", "default", "gpt-2"}) EXPECT_EQ(with(pre, "123"), 1u) << pre;
  for (const char* pre : {"smollm", "starcoder", "qwen2", "qwen35"})
    EXPECT_EQ(with(pre, "123"), 3u) << pre;
  EXPECT_EQ(with("llama-bpe", "123"), 1u);
  EXPECT_EQ(with("llama-bpe", "1123"), 3u);  // digits in threes from the left: 112 3, so 1 12 3
  EXPECT_EQ(with("llama-bpe", "'S"), 1u);
  EXPECT_EQ(with("gpt-2", "'Sx"), 3u);

  vocab.pre = "llama3";  // its family begins with bos unless the file says no
  EXPECT_EQ(must(Tokenizer::from_gguf(vocab))->encode_with_specials("")->size(), 1u);
  vocab.pre = "qwen2";  // composes: e + U+0301
  EXPECT_EQ(encode(vocab, "e\u0301"), bytes_of("é"));
}

TEST(GgufVocab, RefusesWhatItCannotDo) {
  GgufVocab vocab = byte_vocab();
  const auto error = [&] { return Tokenizer::from_gguf(vocab).error(); };
  vocab.model = "t5";
  EXPECT_EQ(error().code, Code::unsupported);
  EXPECT_THAT(error().message, HasSubstr("\"t5\""));
  vocab = byte_vocab();
  vocab.pre = "psychic";
  EXPECT_EQ(error().code, Code::unsupported);
  EXPECT_THAT(error().message, HasSubstr("psychic"));
}

TEST(GgufVocab, RefusesWhatContradictsItself) {
  const auto code = [](auto edit) {
    GgufVocab vocab = byte_vocab();
    edit(vocab);
    return Tokenizer::from_gguf(vocab).error().code;
  };
  EXPECT_EQ(code([](GgufVocab& v) { v.tokens.clear(); }), Code::corrupt);
  EXPECT_EQ(code([](GgufVocab& v) { v.token_types.pop_back(); }), Code::corrupt);
  EXPECT_EQ(code([](GgufVocab& v) { v.tokens[3] = "\xFF"; }), Code::corrupt);
  EXPECT_EQ(code([](GgufVocab& v) { v.bos_id = -1; }), Code::corrupt);
  EXPECT_EQ(code([](GgufVocab& v) { v.eos_id = kByteVocab; }), Code::corrupt);
  EXPECT_EQ(code([](GgufVocab& v) { v.pad_id = 1 << 30; }), Code::corrupt);
  for (const char* merge : {"", " ", "he", "h ", " h", "zz y", "h \xFF"})
    EXPECT_EQ(code([&](GgufVocab& v) { v.merges.push_back(merge); }), Code::corrupt) << merge;
}

}  // namespace
}  // namespace tenon::text
