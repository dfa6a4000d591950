// KvPages of the CPU kernels: pages in plain memory; one primitive appends and attends.
#include <algorithm>

#include "ops/cpu_attend.h"
#include "ops/cpu_kernels.h"

namespace tenon::ops {

namespace {

class CpuPages final : public KvPages {
 public:
  CpuPages(const cpu::KvLayout& layout, CpuContextPtr context)
      : context_(std::move(context)), pool_(std::make_shared<cpu::KvPool>(layout)) {}

  int page_tokens() const override { return cpu::kPageTokens; }
  uint64_t page_bytes() const override { return pool_->layout().page_bytes(); }
  uint64_t bytes() const override { return pool_->bytes(); }
  int take() override { return pool_->take(); }
  void give(int page) override { pool_->give(page); }
  mx::array ticket() const override { return ticket_; }

  std::span<std::byte> page(int page) override {
    return {pool_->page(page), pool_->layout().page_bytes()};
  }

  mx::array attend(const Qkv& qkv, Rows rows, std::span<const std::vector<int>> pages,
                   const Attend& how) override {
    const cpu::KvLayout& kv = pool_->layout();
    std::vector<RowPages> tables;
    for (size_t i = 0; i < rows.size(); ++i) {
      tables.push_back({rows[i], {}});
      for (int page : pages[i])
        tables.back().pages.push_back(page < 0 ? nullptr : pool_->page(page));
    }
    std::vector<mx::array> inputs{qkv.q, ticket_};
    if (qkv.k) inputs.insert(inputs.end(), {*qkv.k, *qkv.v});
    const AttendShape shape{kv, qkv.q.shape(1), how, qkv.k.has_value()};
    auto call = [shape, tables = std::move(tables), pool = pool_](const CpuArgs& a) {
      ops::attend(a, shape, tables);
      a.y(1)[0] = 0;
    };
    auto out = cpu_call("attend", context_, std::move(inputs),
                        {{qkv.q.shape(0), qkv.q.shape(1), kv.v_dim}, {1}}, std::move(call));
    ticket_ = out[1];
    return out[0];
  }

 private:
  CpuContextPtr context_;
  std::shared_ptr<cpu::KvPool> pool_;
  mx::array ticket_ = mx::zeros({1}, mx::float32);
};

}  // namespace

namespace {

Result<cpu::KvLayout> layout_of(const KvShape& shape) {
  cpu::KvLayout layout{shape.num_kv_heads, shape.k_head_dim, shape.v_head_dim};
  layout.group = shape.group_size;
  if (shape.bits == 8 || shape.bits == 4)
    layout.type = shape.bits == 8 ? cpu::KvType::q8 : cpu::KvType::q4;
  else if (shape.bits != 0)
    return unsupported("keys and values of {} bits: the tenon kernels of the CPU store 4 or 8",
                       shape.bits);
  else if (shape.dtype == mx::float32 || shape.dtype == mx::float16)
    layout.type = shape.dtype == mx::float32 ? cpu::KvType::f32 : cpu::KvType::f16;
  else
    return unsupported("--kv {}: the tenon kernels of the CPU store f16, f32, q8 or q4",
                       dtype_name(shape.dtype));
  TENON_OK(layout.check());
  return layout;
}

}  // namespace

Result<std::shared_ptr<KvPages>> make_cpu_pages(const KvShape& shape, CpuContextPtr context) {
  TENON_TRY(const cpu::KvLayout layout, layout_of(shape));
  return std::shared_ptr<KvPages>(new CpuPages(layout, std::move(context)));
}

}  // namespace tenon::ops
