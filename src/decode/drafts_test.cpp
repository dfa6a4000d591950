// Draft sources by themselves: what they are called, what they refuse, what `ngram` finds.
#include <gmock/gmock.h>

#include <random>

#include "decode/decode.h"
#include "decode/toy_target.h"

namespace tenon::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// No source here gets far enough to use it.
graph::Model& no_target() {
  static ToyTarget none(1);
  return none;
}
DraftContext no_context() {
  const auto refuse = [](const std::string& path) -> Error {
    return not_found("there is nothing at '{}'", path);
  };
  return {no_target(), refuse, refuse};
}
Result<std::unique_ptr<DraftSource>> make(std::string_view text) {
  TENON_TRY(const DraftSpec spec, parse_draft_spec(text));
  return make_draft_source(spec, no_context());
}

TEST(DraftSpecs, AreTakenApart) {
  const auto plain = *parse_draft_spec("ngram");
  EXPECT_EQ(plain.source, "ngram");
  EXPECT_EQ(plain.path, "");
  EXPECT_THAT(plain.options, IsEmpty());
  const auto path = *parse_draft_spec("model:/some/where, with comma");
  EXPECT_EQ(path.path, "/some/where, with comma");
  const auto both = *parse_draft_spec("mtp:/a/b,hidden=final_norm");
  EXPECT_EQ(both.path, "/a/b");
  EXPECT_EQ(both.options.at("hidden"), "final_norm");
  const auto equals = *parse_draft_spec("mtp:/a,b/lr=3/c,hidden=final_norm");
  EXPECT_EQ(equals.path, "/a,b/lr=3/c");
  EXPECT_EQ(equals.options.size(), 1u);
  EXPECT_EQ(parse_draft_spec("ngram:max=4,min=2")->options.size(), 2u);
}

TEST(DraftSpecs, RefusalsSayWhatIsWrong) {
  const auto message = [](std::string_view text) {
    const auto made = make(text);
    EXPECT_FALSE(made.ok()) << text;
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_THAT(message("telepathy"), HasSubstr("none, ngram"));
  EXPECT_THAT(message(""), HasSubstr("none, ngram"));
  EXPECT_THAT(message("ngram:/a/path"), HasSubstr("takes no path"));
  EXPECT_THAT(message("none:x=1"), HasSubstr("no option 'x'"));
  EXPECT_THAT(message("ngram:size=3"), HasSubstr("max, min"));
  EXPECT_THAT(message("ngram:max=9"), HasSubstr("1 to 8"));
  EXPECT_THAT(message("ngram:max=x"), HasSubstr("max=x"));
  EXPECT_THAT(message("ngram:max=2,min=3"), HasSubstr("min 3 is more than max 2"));
  EXPECT_THAT(message("ngram:max=2,max=3"), HasSubstr("twice"));
  EXPECT_THAT(message("ngram:max=2,min"), HasSubstr("key=value"));
  EXPECT_THAT(message("model"), HasSubstr("model:PATH"));
  EXPECT_THAT(message("model:/nowhere"), HasSubstr("/nowhere"));
  EXPECT_THAT(message("mtp:hidden=raw"), HasSubstr("pre_norm or final_norm"));
}

TEST(DraftSources, EveryNameIsOfTheRegistry) {
  EXPECT_THAT(draft_sources(), ::testing::Contains("none"));
  for (const std::string& name : draft_sources()) {
    const auto made = make(name);
    if (made.ok()) {
      EXPECT_EQ((*made)->name(), name);
    } else {
      EXPECT_NE(made.error().code, Code::unsupported) << name;
    }
  }
}

class Ngram : public ::testing::Test {
 protected:
  std::vector<int32_t> draft(std::vector<int32_t> known, int n, const char* spec = "ngram") {
    auto source = *make(spec);
    source->open(4);
    const DraftRow row{4, known, n, 0, nullptr};
    return source->draft(std::span(&row, 1))[0];
  }
};

TEST_F(Ngram, LongestSuffixEarliestPlace) {
  EXPECT_THAT(draft({1, 2, 3, 4, 9, 2, 3}, 3), ElementsAre(4, 9, 2));  // (2 3), not (3) alone
  EXPECT_THAT(draft({5, 3, 7, 1, 2, 3, 8, 2, 3}, 2), ElementsAre(8, 2));  // (2 3) before (3) at 1
  EXPECT_THAT(draft({3, 1, 3, 2, 3}, 2), ElementsAre(1, 3));  // the first (3)
  EXPECT_THAT(draft({1, 2, 3, 4, 5}, 3), IsEmpty());  // nothing came before
  EXPECT_THAT(draft({7}, 3), IsEmpty());
  EXPECT_THAT(draft({6, 6}, 4), ElementsAre(6));  // cut at the end
  EXPECT_THAT(draft({1, 2, 1, 2}, 9), ElementsAre(1, 2));
  EXPECT_THAT(draft({9, 1, 9}, 3, "ngram:min=2"), IsEmpty());  // too short a suffix
  EXPECT_THAT(draft({1, 2, 3, 0, 4, 2, 3, 7, 1, 2, 3}, 1, "ngram:max=2"), ElementsAre(0));
}

// A hundred thousand tokens: a table that were walked would take minutes here.
TEST_F(Ngram, LongTexts) {
  std::mt19937 random(6);
  std::vector<int32_t> known;
  for (int i = 0; i < 100'000; ++i) known.push_back(static_cast<int32_t>(random() % 50'000));
  known.insert(known.end(), known.begin() + 70'000, known.begin() + 70'008);
  EXPECT_THAT(draft(known, 3), ElementsAre(known[70'008], known[70'009], known[70'010]));
  std::vector<int32_t> same(100'000, 7);
  EXPECT_THAT(draft(same, 3), ElementsAre(7, 7, 7));
}

// The table finds what a search through the text would find.
TEST_F(Ngram, AgreesWithASearch) {
  std::mt19937 random(5);
  for (int alphabet : {2, 5, 40}) {
    auto source = *make("ngram:max=4,min=2");
    source->open(0);
    std::vector<int32_t> known;
    for (int i = 0; i < 400; ++i) {
      known.push_back(static_cast<int32_t>(random()) % alphabet);
      if (random() % 3 == 0) continue;  // several tokens at once, too
      const DraftRow row{0, known, 6, 0, nullptr};
      std::vector<int32_t> want;
      const int len = static_cast<int>(known.size());
      for (int size = std::min(4, len - 1); size >= 2 && want.empty(); --size)
        for (int at = 0; at + size < len && want.empty(); ++at)
          if (std::equal(known.begin() + at, known.begin() + at + size, known.end() - size))
            want.assign(known.begin() + at + size, known.begin() + std::min(len, at + size + 6));
      ASSERT_EQ(source->draft(std::span(&row, 1))[0], want) << i;
    }
  }
}

// Learning in pieces, after rounds, is learning at once; a closed row is forgotten.
TEST_F(Ngram, RowsComeAndGo) {
  auto source = *make("ngram");
  source->open(1);
  source->open(2);
  const std::vector<int32_t> a{1, 2, 3, 1, 2}, b{4, 5, 4};
  const KeptRow kept[] = {{1, a, {}, 0, 3, 0}, {2, b, {}, 0, 3, 3}};
  source->keep(kept, {});
  const DraftRow rows[] = {{1, a, 2, 0, nullptr}, {2, b, 2, 0, nullptr}};
  EXPECT_THAT(source->draft(rows), ElementsAre(ElementsAre(3, 1), ElementsAre(5, 4)));
  source->close(1);
  source->open(1);
  const std::vector<int32_t> c{8, 1, 2};
  const DraftRow fresh{1, c, 2, 0, nullptr};
  EXPECT_THAT(source->draft(std::span(&fresh, 1))[0], IsEmpty());
}

}  // namespace
}  // namespace tenon::decode
