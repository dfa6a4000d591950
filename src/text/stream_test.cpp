#include <random>

#include "text/test_tokenizers.h"
#include "text/utf8.h"

namespace tenon::text {
namespace {

std::string streamed(const std::shared_ptr<const Tokenizer>& tokenizer,
                     const std::vector<int32_t>& ids, bool skip_special = true) {
  TextStream stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string delta = stream.push(id);
    EXPECT_TRUE(is_utf8(delta));
    text += delta;
  }
  return text + stream.flush();
}

// B01: an emoji over many tokens arrives whole.
TEST(TextStream, CharactersArriveWhole) {
  const auto tokenizer = byte_tokenizer();
  TextStream stream(tokenizer);
  const std::string text = "👩🏽‍🚀 漢 é";
  std::string joined;
  for (const int32_t id : bytes_of(text)) {
    const std::string delta = stream.push(id);
    EXPECT_TRUE(delta.empty() || utf8_head(delta).len == delta.size());
    joined += delta;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(stream.flush(), "");
}

TEST(TextStream, UnfinishedCharacterIsOneReplacement) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(streamed(tokenizer, {'a', 0xF0, 0x9F, 0x91}), "a\uFFFD");
  EXPECT_EQ(streamed(tokenizer, {0xF0, 0x9F, 'b'}), "\uFFFDb");
  EXPECT_EQ(streamed(tokenizer, {0xED, 0xA0, 0x80}), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(streamed(tokenizer, {'a', -1, 0xC3, 1 << 30, 'b'}), "a\uFFFD\uFFFD\uFFFDb");
}

TEST(TextStream, SpecialTokensAreSkippedOnDemand) {
  const auto tokenizer = byte_tokenizer();
  const std::vector<int32_t> ids = {kBos, kHe, kThink, kImEnd};
  EXPECT_EQ(streamed(tokenizer, ids), "he<think>");
  EXPECT_EQ(streamed(tokenizer, ids, false), "<s>he<think><|im_end|>");
}

TEST(TextStream, JoinsToOneShotTextWhateverTheBytes) {
  const auto tokenizer = byte_tokenizer();
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(random() % 12);
    // Mostly bytes around the borders of UTF-8's ranges.
    static constexpr int32_t kBytes[] = {'a',  0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1,
                                         0xC2, 0xE0, 0xE1, 0xED, 0xF0, 0xF4, 0xF5, kBos};
    for (int32_t& id : ids) id = kBytes[random() % std::size(kBytes)];
    EXPECT_EQ(streamed(tokenizer, ids), *tokenizer->decode(ids, true));
  }
}

TEST(TextStream, ContextualDecoder) {
  const auto tokenizer = spm_tokenizer();
  const int32_t byte = 6;
  // The first space is the tokenizer's own; the second "▁a" keeps its.
  EXPECT_EQ(streamed(tokenizer, {5, 5, 4}), "a ab");
  EXPECT_EQ(streamed(tokenizer, {5, byte + 0xC3, byte + 0xA9, 3}), "aéa");
  EXPECT_EQ(streamed(tokenizer, {5, byte + 0xE6, byte + 0xBC}), "a\uFFFD");
  EXPECT_EQ(streamed(tokenizer, {1, 5, 999, 3}), "a\uFFFDa");
  EXPECT_EQ(streamed(tokenizer, {}), "");

  TextStream stream(tokenizer);
  size_t held = 0;
  std::string text;
  for (int i = 0; i < 100; ++i) {
    const std::string delta = stream.push(byte + 0xFF);
    held = delta.empty() ? held + 1 : 0;
    EXPECT_LE(held, 16u);
    text += delta;
  }
  EXPECT_FALSE(text.empty());
}

TEST(Utf8, Check) {
  EXPECT_TRUE(is_utf8("aé漢😀"));
  for (const char* bad : {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF8", "\xC3", "\xF0\x9F\x98"})
    EXPECT_FALSE(is_utf8(bad));
}

}  // namespace
}  // namespace tenon::text
