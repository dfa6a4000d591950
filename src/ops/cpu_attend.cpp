// Attention over pages as one CPU call. Queries of the tokens of a block that share a key/value
// head are one item of work; where there are few items, the keys are cut into spans of 512 as well.
// The spans are folded in order either way, so results do not depend on it.
#include "ops/cpu_attend.h"

#include <algorithm>

#include "ops/cpu_linear.h"

namespace tenon::ops {

namespace {

constexpr int kSpanTiles = 8;
constexpr int kBlockQueries = 16;
constexpr int kItemsPerThread = 4;

// Tokens [first, first + len) of one row against the keys of one head.
struct Block {
  const RowPages* row;
  int first, len, kv_head;
  // The last key that token `i` of the block sees.
  int last_key(int i, const Attend& how) const {
    return row->slice.offset + (how.whole ? row->slice.len : first + i + 1) - 1;
  }
};

// The state of a block's queries over some keys.
struct State {
  float *max, *sum, *values;
};

class AttendTask {
 public:
  AttendTask(const CpuArgs& args, const AttendShape& shape, std::span<const RowPages> rows)
      : c_(args.context), shape_(shape), rows_(rows), args_(args) {}

  void run() {
    scale_and_append();
    cut_blocks();
    spans_max_ = 1;
    for (const Block& b : blocks_) spans_max_ = std::max(spans_max_, num_spans(b));
    const int num_blocks = static_cast<int>(blocks_.size());
    const bool few = num_blocks < c_.pool.num_threads() * kItemsPerThread;
    few&& spans_max_ > 1 ? run_spans() : c_.pool.run(num_blocks, [&](int i) { whole(blocks_[i]); });
  }

 private:
  int num_queries(const Block& b) const { return b.len * shape_.group(); }
  int first_tile(const Block& b) const {
    const int position = b.row->slice.offset + b.first;
    return shape_.how.window > 0 ? std::max(0, position - shape_.how.window + 1) / cpu::kPageTokens
                                 : 0;
  }
  int end_tile(const Block& b) const {
    return b.last_key(b.len - 1, shape_.how) / cpu::kPageTokens + 1;
  }
  int num_spans(const Block& b) const { return (end_tile(b) + kSpanTiles - 1) / kSpanTiles; }

  // Queries are scaled, keys and values go to their pages.
  void scale_and_append() {
    const size_t q_width = static_cast<size_t>(shape_.num_heads) * shape_.kv.k_dim;
    std::vector<std::pair<const RowPages*, int>> tokens;
    for (const RowPages& row : rows_)
      for (int i = 0; i < row.slice.len; ++i) tokens.emplace_back(&row, i);
    scaled_ = c_.scratch.take<float>(tokens.size() * q_width);
    spread(c_, static_cast<int>(tokens.size()), static_cast<int>(2 * q_width), [&](int t) {
      const auto [row, i] = tokens[t];
      const size_t at = (row->slice.start + i) * q_width;
      c_.table->scale(shape_.how.scale, args_.x(0) + at, static_cast<int>(q_width), scaled_ + at);
      if (shape_.appends) append(*row, i);
    });
  }

  void append(const RowPages& row, int i) const {
    const cpu::KvLayout& kv = shape_.kv;
    const size_t at = row.slice.start + i;
    const int position = row.slice.offset + i;
    c_.table->store_token(kv, row.pages[position / cpu::kPageTokens], position % cpu::kPageTokens,
                          args_.x(AttendShape::kKeys) + at * kv.num_kv_heads * kv.k_dim,
                          args_.x(AttendShape::kValues) + at * kv.num_kv_heads * kv.v_dim);
  }

  void cut_blocks() {
    const int step = std::max(1, kBlockQueries / shape_.group());
    for (const RowPages& row : rows_)
      for (int first = 0; first < row.slice.len; first += step)
        for (int head = 0; head < shape_.kv.num_kv_heads; ++head)
          blocks_.push_back({&row, first, std::min(step, row.slice.len - first), head});
  }

  // The queries of a block over one span of its keys.
  void attend_span(const Block& b, int span, const State& state) const {
    const int n = num_queries(b), group = shape_.group(), k_dim = shape_.kv.k_dim;
    const float* q[kBlockQueries];
    int positions[kBlockQueries];
    // A group wider than a block goes in pieces.
    for (int begin = 0; begin < n; begin += kBlockQueries) {
      const int count = std::min(kBlockQueries, n - begin);
      for (int i = 0; i < count; ++i) {
        const int token = (begin + i) / group, head = b.kv_head * group + (begin + i) % group;
        const size_t at = b.row->slice.start + b.first + token;
        q[i] = scaled_ + (at * shape_.num_heads + head) * k_dim;
        positions[i] = b.last_key(token, shape_.how);
      }
      cpu::AttendArgs a{};
      a.kv = &shape_.kv;
      a.pages = b.row->pages.data();
      a.kv_head = b.kv_head;
      a.num_queries = count;
      a.q = q;
      a.positions = positions;
      a.window = shape_.how.window;
      a.softcap = shape_.how.softcap;
      a.tile_begin = std::max(span * kSpanTiles, first_tile(b));
      a.tile_end = std::min((span + 1) * kSpanTiles, end_tile(b));
      a.max = state.max + begin;
      a.sum = state.sum + begin;
      a.values = state.values + static_cast<size_t>(begin) * shape_.kv.v_dim;
      c_.table->attend(a);
    }
  }

  void fold(const Block& b, const State& into, const State& part) const {
    for (int i = 0; i < num_queries(b); ++i) {
      const size_t at = static_cast<size_t>(i) * shape_.kv.v_dim;
      c_.table->merge(into.max + i, into.sum + i, into.values + at, part.max[i], part.sum[i],
                      part.values + at, shape_.kv.v_dim);
    }
  }

  void write(const Block& b, const State& state) const {
    const int group = shape_.group(), v_dim = shape_.kv.v_dim;
    for (int i = 0; i < num_queries(b); ++i) {
      const size_t at = b.row->slice.start + b.first + i / group;
      const int head = b.kv_head * group + i % group;
      c_.table->finish(state.sum[i], state.values + static_cast<size_t>(i) * v_dim, v_dim,
                       args_.y(0) + (at * shape_.num_heads + head) * v_dim);
    }
  }

  size_t state_floats(int queries) const {
    return static_cast<size_t>(queries) * (shape_.kv.v_dim + 2);
  }
  State state_at(float* memory, int queries) const {
    return {memory, memory + queries, memory + 2 * queries};
  }

  // One thread does a block from its first key to its last.
  void whole(const Block& b) const {
    thread_local std::vector<float> memory;
    const int n = num_queries(b);
    memory.resize(std::max(memory.size(), 2 * state_floats(n)));
    const State state = state_at(memory.data(), n);
    const State part = state_at(memory.data() + state_floats(n), n);
    attend_span(b, 0, state);
    for (int span = 1; span < num_spans(b); ++span) {
      attend_span(b, span, part);
      fold(b, state, part);
    }
    write(b, state);
  }

  // Spans of all blocks side by side, then folded in order.
  void run_spans() {
    const int num_blocks = static_cast<int>(blocks_.size());
    int n_max = 0;
    for (const Block& b : blocks_) n_max = std::max(n_max, num_queries(b));
    const size_t stride = state_floats(n_max);
    float* memory = c_.scratch.take<float>(stride * num_blocks * spans_max_);
    const auto state = [&](int block, int span) {
      return state_at(memory + stride * (static_cast<size_t>(block) * spans_max_ + span), n_max);
    };
    c_.pool.run(num_blocks * spans_max_, [&](int i) {
      const Block& b = blocks_[i / spans_max_];
      if (i % spans_max_ < num_spans(b))
        attend_span(b, i % spans_max_, state(i / spans_max_, i % spans_max_));
    });
    c_.pool.run(num_blocks, [&](int i) {
      const State into = state(i, 0);
      for (int span = 1; span < num_spans(blocks_[i]); ++span)
        fold(blocks_[i], into, state(i, span));
      write(blocks_[i], into);
    });
  }

  CpuContext& c_;
  const AttendShape& shape_;
  std::span<const RowPages> rows_;
  const CpuArgs& args_;
  float* scaled_ = nullptr;  // q * scale, [N, H, D]
  std::vector<Block> blocks_;
  int spans_max_ = 1;
};

}  // namespace

void attend(const CpuArgs& args, const AttendShape& shape, std::span<const RowPages> rows) {
  AttendTask(args, shape, rows).run();
}

}  // namespace tenon::ops
