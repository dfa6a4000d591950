// Draft source `ngram`: the last tokens occurred before, so what followed them then may follow now.
// The longest suffix of max..min tokens that occurred counts, where it occurred first. A table of
// first occurrences keeps a lookup at max - min + 1 probes however long the text is.
// Options: max, min (tokens). Source: spec/speculative.md 5.2; Saxena, "Prompt lookup decoding".
#include <unordered_map>

#include "decode/drafts.h"

namespace tenon::decode {

namespace {

constexpr int kDefaultDepth = 10;
constexpr int kMaxDepth = 24;
constexpr int kGramMax = 8;

class Ngram final : public DraftSource {
 public:
  Ngram(int min, int max) : min_(min), max_(max) {}
  const char* name() const override { return "ngram"; }
  int default_depth() const override { return kDefaultDepth; }
  int max_depth() const override { return kMaxDepth; }
  bool is_free() const override { return true; }
  void open(int slot) override { rows_[slot] = {}; }
  void close(int slot) override { rows_.erase(slot); }

  std::vector<std::vector<int32_t>> draft(std::span<const DraftRow> rows) override {
    std::vector<std::vector<int32_t>> all;
    for (const DraftRow& row : rows) {
      Row& index = rows_.at(row.slot);
      learn(index, row.known);
      all.push_back(look_up(index, row.known, row.num_drafts));
    }
    return all;
  }

  // A long prompt is learned in the pieces it is computed in.
  void keep(std::span<const KeptRow> rows, const graph::Taps&) override {
    for (const KeptRow& row : rows)
      learn(rows_.at(row.slot), row.known.first(std::min<size_t>(row.to, row.known.size())));
  }

 private:
  struct Row {
    std::vector<std::unordered_map<uint64_t, int>> ends;  // by length: gram -> its end, the first
    int len = 0;  // tokens learned
  };

  // Different grams may share a key: a lookup compares the tokens.
  static uint64_t key(std::span<const int32_t> gram) {
    uint64_t h = 0x9E3779B97F4A7C15ull;
    for (int32_t id : gram) {
      h = (h ^ static_cast<uint32_t>(id)) * 0xBF58476D1CE4E5B9ull;
      h ^= h >> 29;
    }
    return h;
  }

  // Enters every gram that a token follows: the one that ends the text would only find itself.
  void learn(Row& row, std::span<const int32_t> known) const {
    row.ends.resize(max_ - min_ + 1);
    for (; row.len < static_cast<int>(known.size()); ++row.len)
      for (int size = min_; size <= max_ && size <= row.len; ++size)
        row.ends[size - min_].try_emplace(key(known.subspan(row.len - size, size)), row.len);
  }

  std::vector<int32_t> look_up(const Row& row, std::span<const int32_t> known, int n) const {
    const int len = static_cast<int>(known.size());
    for (int size = std::min(max_, len - 1); size >= min_; --size) {
      const auto suffix = known.last(size);
      const auto found = row.ends[size - min_].find(key(suffix));
      if (found == row.ends[size - min_].end()) continue;
      const int end = found->second;
      if (!std::equal(suffix.begin(), suffix.end(), known.begin() + (end - size))) continue;
      const auto next = known.subspan(end, std::min(n, len - end));
      return {next.begin(), next.end()};
    }
    return {};
  }

  const int min_, max_;
  std::unordered_map<int, Row> rows_;
};

}  // namespace

Result<std::unique_ptr<DraftSource>> make_ngram(const DraftSpec& spec, const DraftContext&) {
  TENON_OK(check_draft_spec(spec, false, {"max", "min"}));
  TENON_TRY(const int max, draft_option(spec, "max", 3, 1, kGramMax));
  TENON_TRY(const int min, draft_option(spec, "min", 1, 1, kGramMax));
  if (min > max) return invalid("--draft ngram: min {} is more than max {}", min, max);
  return std::unique_ptr<DraftSource>(new Ngram(min, max));
}

}  // namespace tenon::decode
