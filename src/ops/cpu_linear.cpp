#include "ops/cpu_linear.h"

#include <algorithm>

namespace tenon::ops {

namespace {

// Rows whose activations stay in the cache while tiles stream past them.
constexpr int kRowBlock = 64;
// Work items for each thread: enough that one slowed thread does not hold up the rest.
constexpr int kItemsPerThread = 4;

struct Item {
  const Product* product;
  int tile_begin, tile_end;
};

// Tiles of all products in pieces of about equal bytes.
std::vector<Item> cut(std::span<const Product> products, int num_items) {
  size_t total = 0;
  for (const Product& p : products) total += p.w->num_tiles() * p.w->tile_bytes;
  const size_t piece = std::max<size_t>(total / num_items, 1);
  std::vector<Item> items;
  for (const Product& p : products) {
    const int tiles = static_cast<int>(std::max<size_t>(piece / p.w->tile_bytes, 1));
    for (int begin = 0; begin < p.w->num_tiles(); begin += tiles)
      items.push_back({&p, begin, std::min(begin + tiles, p.w->num_tiles())});
  }
  return items;
}

}  // namespace

Operand::Operand(CpuContext& context, int num_rows, int in,
                 std::span<const cpu::PackedMatrix* const> matrices)
    : table_(context.table), num_rows_(num_rows), in_(in) {
  Scratch& scratch = context.scratch;
  for (const cpu::PackedMatrix* m : matrices) {
    const cpu::Packing& p = m->packing;
    if (!p.is_integer() || quantized(p) != nullptr) continue;
    const int groups = in / p.group;
    auto* rows = scratch.take<cpu::QuantizedRow>(num_rows);
    auto* codes = scratch.take<int16_t>(static_cast<size_t>(num_rows) * in);
    auto* scales = scratch.take<float>(static_cast<size_t>(num_rows) * groups);
    auto* sums = scratch.take<float>(static_cast<size_t>(num_rows) * groups);
    auto* code_sums = scratch.take<int32_t>(static_cast<size_t>(num_rows) * groups);
    for (int r = 0; r < num_rows; ++r) {
      const size_t at = static_cast<size_t>(r) * groups;
      rows[r] = {codes + static_cast<size_t>(r) * in, scales + at, sums + at, code_sums + at};
    }
    forms_.push_back({p.group, rows});
  }
}

void Operand::fill(int row, const float* x) {
  if (row == 0) x_ = x;
  for (const Form& form : forms_) table_->quantize(x, in_, form.group, form.rows[row]);
}

const cpu::QuantizedRow* Operand::quantized(const cpu::Packing& packing) const {
  if (packing.is_integer())
    for (const Form& form : forms_)
      if (form.group == packing.group) return form.rows;
  return nullptr;
}

void multiply(CpuContext& context, const Operand& operand, std::span<const Product> products) {
  const std::vector<Item> items = cut(products, context.pool.num_threads() * kItemsPerThread);
  const int num_items = static_cast<int>(items.size());
  const int blocks = (operand.num_rows() + kRowBlock - 1) / kRowBlock;
  context.pool.run(blocks * num_items, [&](int i) {
    const int first = i / num_items * kRowBlock;
    const Item& item = items[i % num_items];
    const cpu::PackedMatrix& w = *item.product->w;
    const cpu::QuantizedRow* quantized = operand.quantized(w.packing);
    cpu::LinearArgs args{};
    args.w = &w;
    args.rows = std::min(kRowBlock, operand.num_rows() - first);
    args.quantized = quantized == nullptr ? nullptr : quantized + first;
    args.x = quantized != nullptr ? nullptr
                                  : operand.floats() + static_cast<size_t>(first) * operand.in();
    args.x_stride = operand.in();
    args.tile_begin = item.tile_begin;
    args.tile_end = item.tile_end;
    args.out = item.product->out + static_cast<size_t>(first) * item.product->stride;
    args.out_stride = item.product->stride;
    context.table->linear(args);
  });
}

}  // namespace tenon::ops
