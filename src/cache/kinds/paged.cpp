// Cache kind `paged`: rows as lists of pages, for kernel families that attend over pages in place.
// A page belongs to one row; rolling back gives whole pages back and leaves the rest of the last
// one to be written over. Nothing is ever copied.
#include <map>
#include <stdexcept>

#include "cache/cache.h"

namespace tenon::cache {

namespace {

class PagedCache final : public LayerCache {
 public:
  PagedCache(const LayerPlan& plan, std::shared_ptr<ops::KvPages> pages)
      : plan_(plan), pages_(std::move(pages)) {}
  ~PagedCache() override {
    while (!rows_.empty()) close(rows_.begin()->first);
  }

  std::string signature() const override { return "kv:plain"; }
  double bytes_per_token() const override {
    return static_cast<double>(pages_->page_bytes()) / pages_->page_tokens();
  }
  uint64_t bytes() const override { return pages_->bytes(); }

  void open(int slot) override {
    if (!rows_.try_emplace(slot).second) throw std::logic_error("[cache.open] the slot is open");
  }
  void close(int slot) override {
    const auto row = rows_.find(slot);
    if (row == rows_.end()) return;
    shrink(row->second, 0);
    rows_.erase(row);
  }
  int len(int slot) const override { return rows_.at(slot).len; }

  mx::array attend(const mx::array& q, const mx::array& k, const mx::array& v, ops::Rows rows,
                   const ops::Attend& how) override {
    std::vector<std::vector<int>> tables;
    for (const ops::RowSlice& slice : rows) {
      Row& row = rows_.at(slice.slot);
      if (slice.offset != row.len)
        throw std::logic_error("[cache.attend] the row is not at its offset");
      const int len = row.len + slice.len;
      while (static_cast<int64_t>(row.pages.size()) * pages_->page_tokens() < len)
        row.pages.push_back(pages_->take());
      row.len = len;
      tables.push_back(row.pages);
    }
    return pages_->attend(q, k, v, rows, tables, how);
  }

  void rollback(int slot, int len) override {
    Row& row = rows_.at(slot);
    if (len < 0 || len > row.len) throw std::logic_error("[cache.rollback] length outside the row");
    shrink(row, len);
  }

  void collect(std::vector<mx::array>& out) const override { out.push_back(pages_->ticket()); }

 private:
  struct Row {
    std::vector<int> pages;
    int len = 0;
  };

  void shrink(Row& row, int len) {
    const size_t kept = (len + pages_->page_tokens() - 1) / pages_->page_tokens();
    while (row.pages.size() > kept) {
      pages_->give(row.pages.back());
      row.pages.pop_back();
    }
    row.len = len;
  }

  LayerPlan plan_;
  std::shared_ptr<ops::KvPages> pages_;
  std::map<int, Row> rows_;
};

}  // namespace

Result<std::unique_ptr<LayerCache>> make_paged(const LayerPlan& plan, const ops::Kernels& kernels) {
  TENON_TRY(auto pages, kernels.make_kv_pages(plan.kv));
  if (!pages) return unsupported("cache kind paged needs kernels that attend over pages");
  return std::unique_ptr<LayerCache>(new PagedCache(plan, std::move(pages)));
}

}  // namespace tenon::cache
