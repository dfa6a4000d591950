// Cache kind `paged`: rows as lists of pages, for kernel families that attend over pages in place.
// A page belongs to one row; rolling back gives whole pages back and leaves the rest of the last
// one to be written over. Nothing is ever copied. In a layer with a window, pages that no later
// token sees are given back when the next step begins: until then the last one can be rolled back,
// and what a marked token sees stays until the mark is let go of.
#include <algorithm>
#include <cstring>

#include "base/handover.h"
#include "cache/arrays.h"
#include "cache/row_map.h"

namespace tenon::cache {

namespace {

class PagedCache final : public LayerCache {
 public:
  PagedCache(const LayerPlan& plan, std::shared_ptr<ops::KvPages> pages)
      : plan_(plan), pages_(std::move(pages)) {}
  ~PagedCache() override {
    while (rows_.begin() != rows_.end()) close(rows_.begin()->first);
  }

  std::string signature() const override {
    const std::string kind = plan_.window > 0 ? "kv:rotating-" : "kv:";
    return plan_.kv.bits > 0
               ? fmt::format("{}quant:{}:{}", kind, plan_.kv.bits, plan_.kv.group_size)
               : kind + "plain";
  }
  double bytes_per_token() const override {
    return static_cast<double>(pages_->page_bytes()) / pages_->page_tokens();
  }
  uint64_t bytes() const override { return pages_->bytes(); }

  void open(int slot) override { rows_.open(slot, {}); }
  void close(int slot) override {
    if (!rows_.has(slot)) return;
    shrink(rows_.at(slot), 0);
    rows_.close(slot);
  }
  int len(int slot) const override { return rows_.at(slot).len; }

  mx::array attend(const ops::Qkv& qkv, ops::Rows rows, const ops::Attend& how) override {
    if (plan_.window > 0 && (how.window == 0 || how.window > plan_.window))
      throw std::logic_error(fmt::format("[cache.attend] a window of {} where {} tokens are kept",
                                         how.window, plan_.window));
    std::vector<std::vector<int>> tables;
    for (const ops::RowSlice& slice : rows) {
      Row& row = rows_.at(slice.slot);
      check_offset(slice, row.len, qkv.k.has_value());
      if (qkv.k) extend(row, slice.len);
      tables.push_back(row.pages);
    }
    return pages_->attend(qkv, rows, tables, how);
  }

  void mark(int slot) override {
    Row& row = rows_.at(slot);
    row.marked = row.len;
  }
  bool can_rollback(int slot, int len) const override {
    const Row& row = rows_.at(slot);
    return len >= 0 && len <= row.len && (len == 0 || first_seen(len) >= row.num_given);
  }
  void rollback(int slot, int len) override {
    Row& row = rows_.at(slot);
    if (!can_rollback(slot, len))
      refuse_rollback(len, row.len,
                      fmt::format("0, and {} and up", std::min(row.len, shortest(row))));
    shrink(row, len);
    row.marked.reset();
  }

  Snapshot save(int slot) const override;
  Status load(int slot, const Snapshot& s) override;

  void collect(std::vector<mx::array>& out) const override { out.push_back(pages_->ticket()); }

 private:
  struct Row {
    std::vector<int> pages;  // -1: given back, behind the window
    int num_given = 0;  // of those, all at the front
    int len = 0;
    std::optional<int> marked;
  };

  int num_pages(int len) const { return (len + pages_->page_tokens() - 1) / pages_->page_tokens(); }
  // The first page that the token behind `len` others, or a later one, sees.
  int first_seen(int len) const {
    return plan_.window > 0 ? std::max(0, len - plan_.window + 1) / pages_->page_tokens() : 0;
  }
  // What a row with its pages can go back to, besides nothing.
  int shortest(const Row& row) const {
    return row.num_given > 0 ? row.num_given * pages_->page_tokens() + plan_.window - 1 : 0;
  }

  // Pages may be given back, read and written here only when no attend() is under way.
  void settle() const {
    mx::eval(pages_->ticket());
    Handover::returned();
  }

  void extend(Row& row, int num_new) {
    const int seen = first_seen(row.marked.value_or(row.len));
    if (row.num_given < seen) settle();
    for (; row.num_given < seen; ++row.num_given)
      pages_->give(std::exchange(row.pages[row.num_given], -1));
    const int num = num_pages(row.len + num_new);
    while (static_cast<int>(row.pages.size()) < num) row.pages.push_back(pages_->take());
    row.len += num_new;
  }

  void shrink(Row& row, int len) {
    const int num = num_pages(len);
    while (static_cast<int>(row.pages.size()) > num) {
      if (row.pages.back() >= 0) pages_->give(row.pages.back());
      row.pages.pop_back();
    }
    row.num_given = std::min(row.num_given, num);
    row.len = len;
  }

  LayerPlan plan_;
  std::shared_ptr<ops::KvPages> pages_;
  RowMap<Row> rows_;
};

// Page by page, from the first that is still seen. Bytes behind the last token are anything.
Snapshot PagedCache::save(int slot) const {
  const Row& row = rows_.at(slot);
  settle();
  Snapshot s{signature(), row.len, first_seen(row.len), {}};
  for (int i = s.at; i < static_cast<int>(row.pages.size()); ++i) {
    const std::span<const std::byte> page = pages_->page(row.pages[i]);
    s.parts.push_back({{static_cast<int>(page.size())}, mx::uint8, {page.begin(), page.end()}});
  }
  return s;
}

Status PagedCache::load(int slot, const Snapshot& s) {
  Row& row = rows_.at(slot);
  const int num = num_pages(std::max(s.len, 0)), first = first_seen(std::max(s.len, 0));
  TENON_OK(check_snapshot(s, signature(), num - first, row.len));
  if (s.at != first) return corrupt("snapshot: pages from {} on, not from {}", s.at, first);
  for (const Snapshot::Part& part : s.parts)
    if (part.dtype != mx::uint8 || part.bytes.size() != pages_->page_bytes())
      return corrupt("snapshot: a page of {} bytes, not {}", part.bytes.size(),
                     pages_->page_bytes());
  settle();
  row.pages.assign(first, -1);
  row.num_given = first;
  for (const Snapshot::Part& part : s.parts) {
    row.pages.push_back(pages_->take());
    std::memcpy(pages_->page(row.pages.back()).data(), part.bytes.data(), part.bytes.size());
  }
  row.len = s.len;
  return {};
}

}  // namespace

Result<std::unique_ptr<LayerCache>> make_paged(const LayerPlan& plan, const ops::Kernels& kernels) {
  TENON_TRY(auto pages, kernels.make_kv_pages(plan.kv));
  if (!pages) return unsupported("cache kind paged needs kernels that attend over pages");
  return std::unique_ptr<LayerCache>(new PagedCache(plan, std::move(pages)));
}

}  // namespace tenon::cache
