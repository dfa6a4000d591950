#include <gmock/gmock.h>

#include <random>

#include "text/test_tokenizers.h"

namespace tenon::text {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> stop;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& deltas) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& delta : deltas) {
    const auto out = matcher.push(delta);
    outcome.text += out.text;
    if (out.stop) outcome.stop = out.stop;
  }
  outcome.text += matcher.flush();
  return outcome;
}

std::vector<std::string> letters(const std::string& text) {
  std::vector<std::string> out;
  for (const char c : text) out.emplace_back(1, c);
  return out;
}

// B02: whatever the borders of deltas, the same cut.
TEST(StopMatcher, EarliestMatchWhateverTheBorders) {
  const std::string text = "Here: ABCDEFGHIJK";
  const std::vector<std::pair<std::vector<std::string>, Outcome>> cases = {
      {{"DEFGHIJ"}, {"Here: ABC", "DEFGHIJ"}},    {{"DE"}, {"Here: ABC", "DE"}},
      {{"Q", "DEF"}, {"Here: ABC", "DEF"}},       {{"DEF", "Q"}, {"Here: ABC", "DEF"}},
      {{"DEFGHIJ", "DE"}, {"Here: ABC", "DE"}},     // same start: the shorter ends first
      {{"F", "DEF", "EF"}, {"Here: ABC", "DEF"}},   // same end: the longer
      {{"CDEFGHX", "FG"}, {"Here: ABCDE", "FG"}},   // inside a match that may still come
      {{"HIJKL", "Z"}, {text, std::nullopt}},       // begins, never completes
      {{"", ""}, {text, std::nullopt}},           {{}, {text, std::nullopt}},
  };
  for (const auto& [stops, want] : cases) {
    EXPECT_EQ(run(stops, {text}), want);
    EXPECT_EQ(run(stops, letters(text)), want);
    for (size_t cut = 0; cut <= text.size(); ++cut)
      EXPECT_EQ(run(stops, {text.substr(0, cut), text.substr(cut)}), want);
  }
}

TEST(StopMatcher, HoldsOnlyWhatMayStillMatch) {
  StopMatcher matcher({"aab", "\nUser:"});
  EXPECT_EQ(matcher.push("xa").text, "x");
  EXPECT_EQ(matcher.push("a").text, "");
  EXPECT_EQ(matcher.push("a").text, "a");  // "aa" may still become aab
  EXPECT_EQ(matcher.push("c").text, "aac");
  EXPECT_EQ(matcher.push("d\nUse").text, "d");
  EXPECT_EQ(matcher.push("d").text, "\nUsed");
  EXPECT_EQ(matcher.push("\n").text, "");
  EXPECT_EQ(matcher.flush(), "\n");
}

TEST(StopMatcher, NothingFollowsAMatch) {
  StopMatcher matcher({"."});
  const auto out = matcher.push("One. Two.");
  EXPECT_EQ(out.text, "One");
  EXPECT_EQ(out.stop, ".");
  EXPECT_EQ(matcher.push(" Three.").text, "");
  EXPECT_EQ(matcher.flush(), "");
}

// Against a search of the whole text.
TEST(StopMatcher, AgreesWithSearch) {
  std::mt19937 random(11);
  const auto word = [&](size_t len_max) {
    std::string out(1 + random() % len_max, ' ');
    for (char& c : out) c = "ab"[random() % 2];
    return out;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string text = word(16);
    const std::vector<std::string> stops = {word(5), word(5), word(3)};
    Outcome want{text, std::nullopt};
    for (size_t end = 1; end <= text.size() && !want.stop; ++end)
      for (const std::string& stop : stops)
        if (text.substr(0, end).ends_with(stop) && (!want.stop || stop.size() > want.stop->size()))
          want = {text.substr(0, end - stop.size()), stop};
    EXPECT_EQ(run(stops, letters(text)), want) << text;
    EXPECT_EQ(run(stops, {text}), want) << text;
  }
}

TEST(Reply, StopsAcrossTokensAndCharacters) {
  const auto tokenizer = byte_tokenizer();
  Reply reply(tokenizer, {"é!"});
  std::string content;
  std::optional<std::string> stop;
  for (const int32_t id : bytes_of("hié!x")) {
    const auto delta = reply.push(id);
    content += delta.content;
    if (delta.stop) stop = delta.stop;
  }
  EXPECT_EQ(content, "hi");
  EXPECT_EQ(stop, "é!");
}

TEST(Reply, FinishReleasesWhatWasHeld) {
  const auto tokenizer = byte_tokenizer();
  Reply reply(tokenizer, {"abc"});
  std::string content;
  for (const int32_t id : {int32_t{'x'}, int32_t{'a'}, int32_t{'b'}, 0xF0, 0x9F})
    content += reply.push(id).content;
  EXPECT_EQ(content, "x");
  const auto last = reply.finish();
  EXPECT_EQ(last.content, "ab\uFFFD");
  EXPECT_EQ(last.stop, std::nullopt);
}

}  // namespace
}  // namespace tenon::text
