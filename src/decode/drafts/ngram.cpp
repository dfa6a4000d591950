// Draft source `ngram`: the last tokens occurred before, so what followed them then may follow now.
// The longest suffix of max..min tokens that occurred counts, where it occurred first. Tables of
// first occurrences keep a lookup at max - min + 1 probes however long the text is.
// Options: max, min (tokens). A long max finds the right one of many like places: on code that is
// repeated with a name changed, 111 of 111 drafts were right with 8, and 106 of 126 with 3.
// Source: Saxena, "Prompt lookup decoding".
#include <algorithm>
#include <unordered_map>

#include "decode/drafts.h"

namespace tenon::decode {

namespace {

constexpr int kDefaultDepth = 10;
constexpr int kMaxDepth = 24;
constexpr int kGramMax = 8;

using Tokens = std::span<const int32_t>;

// Where each gram of one length ended first. It holds positions only and compares tokens, so
// different grams never meet; a text that grows is passed in at every call.
class FirstEnds {
 public:
  explicit FirstEnds(int size) : size_(size) {}

  // Enters the gram that ends at `end`, unless it came before.
  void add(Tokens known, int end) {
    if (2 * (count_ + 1) > static_cast<int>(slots_.size())) grow(known);
    int32_t& slot = slots_[place(known, known.subspan(end - size_, size_))];
    if (slot != 0) return;
    slot = end;
    ++count_;
  }
  // 0: it did not come before.
  int find(Tokens known, Tokens gram) const {
    return slots_.empty() ? 0 : slots_[place(known, gram)];
  }

 private:
  size_t place(Tokens known, Tokens gram) const {
    uint64_t hash = 0x9E3779B97F4A7C15ull;
    for (int32_t id : gram) {
      hash = (hash ^ static_cast<uint32_t>(id)) * 0xBF58476D1CE4E5B9ull;
      hash ^= hash >> 29;
    }
    for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      const int end = slots_[at];
      if (end == 0 || std::equal(gram.begin(), gram.end(), known.begin() + (end - size_)))
        return at;
    }
  }
  void grow(Tokens known) {
    std::vector<int32_t> old(std::max<size_t>(64, 2 * slots_.size()), 0);
    old.swap(slots_);
    for (int end : old)
      if (end != 0) slots_[place(known, known.subspan(end - size_, size_))] = end;
  }

  int size_;
  int count_ = 0;
  std::vector<int32_t> slots_;  // open addressing, at most half full; 0: free (no gram ends there)
};

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
    std::vector<FirstEnds> ends;  // by length, from min on
    int len = 0;  // tokens learned
  };

  // Enters every gram that a token follows: the one that ends the text would only find itself.
  void learn(Row& row, Tokens known) const {
    if (row.ends.empty())
      for (int size = min_; size <= max_; ++size) row.ends.emplace_back(size);
    for (; row.len < static_cast<int>(known.size()); ++row.len)
      for (int size = min_; size <= max_ && size <= row.len; ++size)
        row.ends[size - min_].add(known, row.len);
  }

  std::vector<int32_t> look_up(const Row& row, Tokens known, int n) const {
    const int len = static_cast<int>(known.size());
    for (int size = std::min(max_, len - 1); size >= min_; --size) {
      const int end = row.ends[size - min_].find(known, known.last(size));
      if (end == 0) continue;
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
  TENON_TRY(const int max, draft_option(spec, "max", kGramMax, 1, kGramMax));
  TENON_TRY(const int min, draft_option(spec, "min", 1, 1, kGramMax));
  if (min > max) return invalid("--draft ngram: min {} is more than max {}", min, max);
  return std::unique_ptr<DraftSource>(new Ngram(min, max));
}

}  // namespace tenon::decode
