#include "ops/cpu_linear.h"

#include <algorithm>

namespace tenon::ops {

namespace {

// Rows whose activations stay in the cache while tiles stream past them.
constexpr int kRowBlock = 64;
// Work items for each thread: enough that one slowed thread does not hold up the rest.
constexpr int kItemsPerThread = 4;

// Some tiles of a product's matrix against some of its rows.
struct Item {
  const Product* product;
  int first_row, num_rows;
  int tile_begin, tile_end;
};

int rows_of(const Product& p, const Operand& operand) {
  return p.num_rows < 0 ? operand.num_rows() : p.num_rows;
}

// What a tile costs: its bytes are read once, and each row adds arithmetic on them.
size_t tile_cost(const Product& p, int num_rows) {
  constexpr int kRowsAsDearAsReading = 4;
  return p.w->tile_bytes * (kRowsAsDearAsReading + num_rows);
}

// All products in pieces of about equal cost; a piece's rows stay in the cache while its tiles
// stream past them.
std::vector<Item> cut(std::span<const Product> products, const Operand& operand, int num_items) {
  size_t total = 0;
  for (const Product& p : products) {
    const int rows = rows_of(p, operand), block = std::min(rows, kRowBlock);
    total += p.w->num_tiles() * tile_cost(p, block) * ((rows + kRowBlock - 1) / kRowBlock);
  }
  const size_t piece = std::max<size_t>(total / num_items, 1);
  std::vector<Item> items;
  for (const Product& p : products) {
    const int rows = rows_of(p, operand);
    for (int first = 0; first < rows; first += kRowBlock) {
      const int count = std::min(kRowBlock, rows - first);
      const int tiles = static_cast<int>(std::max<size_t>(piece / tile_cost(p, count), 1));
      for (int begin = 0; begin < p.w->num_tiles(); begin += tiles)
        items.push_back(
            {&p, p.first_row + first, count, begin, std::min(begin + tiles, p.w->num_tiles())});
    }
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
    has_float_codes_ |= !p.is_integer();
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

Operand Operand::gather(CpuContext& context, std::span<const int> rows) const {
  Operand gathered = *this;
  gathered.num_rows_ = static_cast<int>(rows.size());
  for (Form& form : gathered.forms_) {
    auto* picked = context.scratch.take<cpu::QuantizedRow>(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) picked[i] = form.rows[rows[i]];
    form.rows = picked;
  }
  gathered.x_ = nullptr;
  if (!has_float_codes_) return gathered;
  auto* x = context.scratch.take<float>(rows.size() * in_);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(x_ + static_cast<size_t>(rows[i]) * in_, in_, x + i * in_);
  gathered.x_ = x;
  return gathered;
}

const cpu::QuantizedRow* Operand::quantized(const cpu::Packing& packing) const {
  if (packing.is_integer())
    for (const Form& form : forms_)
      if (form.group == packing.group) return form.rows;
  return nullptr;
}

void multiply(CpuContext& context, const Operand& operand, std::span<const Product> products) {
  const std::vector<Item> items =
      cut(products, operand, context.pool.num_threads() * kItemsPerThread);
  context.pool.run(static_cast<int>(items.size()), [&](int i) {
    const Item& item = items[i];
    const cpu::PackedMatrix& w = *item.product->w;
    const cpu::QuantizedRow* quantized = operand.quantized(w.packing);
    cpu::LinearArgs args{};
    args.w = &w;
    args.rows = item.num_rows;
    args.quantized = quantized == nullptr ? nullptr : quantized + item.first_row;
    args.x = quantized != nullptr
                 ? nullptr
                 : operand.floats() + static_cast<size_t>(item.first_row) * operand.in();
    args.x_stride = operand.in();
    args.tile_begin = item.tile_begin;
    args.tile_end = item.tile_end;
    args.out = item.product->out + static_cast<size_t>(item.first_row) * item.product->stride;
    args.out_stride = item.product->stride;
    context.table->linear(args);
  });
}

}  // namespace tenon::ops
