// Cache kind `recurrent`: the state of a gated delta layer, of one size however long the row. What
// went into it cannot be taken out, so a mark keeps the state, and the step behind it its inputs
// [L, ...]; rolling back restores that state and advances it again by the inputs that stay. The
// projections are never computed again: a product of other rows may round otherwise. Further steps
// drop the inputs: from then on only the marked state itself can come back.
// Source: https://arxiv.org/abs/2412.06464.
#include "cache/arrays.h"
#include "cache/row_map.h"

namespace tenon::cache {

namespace {

class RecurrentCache final : public LayerCache {
 public:
  RecurrentCache(const LayerPlan& plan, const ops::Kernels& kernels)
      : plan_(plan), kernels_(kernels) {}

  std::string signature() const override { return "ssm"; }
  double bytes_per_token() const override { return 0; }
  uint64_t row_bytes() const override {
    return conv_size() * mx::size_of(plan_.kv.dtype) + delta_size() * sizeof(float);
  }
  uint64_t bytes() const override {
    uint64_t total = 0;
    for (const mx::array& x : arrays()) total += x.nbytes();
    for (const auto& [slot, row] : rows_)
      if (row.round && row.round->before)
        total += row.round->before->conv.nbytes() + row.round->before->delta.nbytes();
    return total;
  }

  void open(int slot) override { rows_.open(slot, {}); }
  void close(int slot) override { rows_.close(slot); }
  int len(int slot) const override { return rows_.at(slot).len; }

  mx::array advance(const ops::DeltaInputs& inputs, const ops::DeltaMixer& mixer,
                    ops::Rows rows) override;
  void mark(int slot) override {
    Row& row = rows_.at(slot);
    row.round = Round{row.len, false, std::nullopt, std::nullopt};
  }
  bool can_rollback(int slot, int len) const override;
  void rollback(int slot, int len) override;

  Snapshot save(int slot) const override {
    const Row& row = rows_.at(slot);
    Snapshot s{signature(), row.len, 0, {}};
    if (row.state) s.parts = {to_part(row.state->conv), to_part(row.state->delta)};
    return s;
  }
  Status load(int slot, const Snapshot& s) override;

  void collect(std::vector<mx::array>& out) const override {
    for (const mx::array& x : arrays()) out.push_back(x);
  }

 private:
  // Since a mark. The state from before it is a handle: nobody writes into one.
  struct Round {
    int len = 0;
    bool stepped = false;
    std::optional<ops::DeltaState> before;  // none: the row was empty
    std::optional<ops::DeltaInputs> inputs;  // of the only step since
  };
  struct Row {
    std::optional<ops::DeltaState> state;  // none: no tokens yet
    int len = 0;
    std::optional<Round> round;
  };

  // What a step makes: states, and what rounds recorded.
  std::vector<mx::array> arrays() const {
    std::vector<mx::array> all;
    for (const auto& [slot, row] : rows_) {
      if (row.state) all.insert(all.end(), {row.state->conv, row.state->delta});
      if (row.round && row.round->inputs)
        all.insert(all.end(), {row.round->inputs->qkv, row.round->inputs->b, row.round->inputs->a});
    }
    return all;
  }
  void record(Row& row, const ops::DeltaInputs& inputs, const ops::RowSlice& slice);
  void replay(Row& row, const ops::DeltaInputs& inputs, int num);

  uint64_t conv_size() const {
    return static_cast<uint64_t>(plan_.delta.taps - 1) * plan_.delta.conv_dim();
  }
  uint64_t delta_size() const {
    return static_cast<uint64_t>(plan_.delta.num_v_heads) * plan_.delta.v_dim * plan_.delta.k_dim;
  }

  LayerPlan plan_;
  const ops::Kernels& kernels_;  // the model's
  std::optional<ops::DeltaMixer> mixer_;  // the layer's, once a step was marked
  RowMap<Row> rows_;
};

mx::array RecurrentCache::advance(const ops::DeltaInputs& inputs, const ops::DeltaMixer& mixer,
                                  ops::Rows rows) {
  std::vector<std::optional<ops::DeltaState>> states;
  for (const ops::RowSlice& slice : rows) {
    Row& row = rows_.at(slice.slot);
    check_offset(slice, row.len, true);
    if (row.round && row.round->stepped) {
      row.round->inputs.reset();
    } else if (row.round) {
      record(row, inputs, slice);
      mixer_ = mixer;
    }
    states.push_back(std::move(row.state));
  }
  const mx::array out = kernels_.advance_delta(inputs, mixer, rows, states);
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows_.at(rows[i].slot);
    row.state = std::move(states[i]);
    row.len += rows[i].len;
  }
  return out;
}

void RecurrentCache::record(Row& row, const ops::DeltaInputs& inputs, const ops::RowSlice& slice) {
  const auto own = [&](const mx::array& x) {
    return true_copy(x, slice.start, slice.start + slice.len);
  };
  const mx::array b = own(inputs.b);
  // z gates what comes out and touches no state: b stands in its place.
  row.round->inputs = ops::DeltaInputs{own(inputs.qkv), b, b, own(inputs.a)};
  row.round->before = row.state;
  row.round->stepped = true;
}

void RecurrentCache::replay(Row& row, const ops::DeltaInputs& inputs, int num) {
  const auto first = [&](const mx::array& x) { return mx::slice(x, {0, 0}, {num, x.shape(1)}); };
  const mx::array b = first(inputs.b);
  const ops::RowSlice slice{0, 0, num, row.len};
  std::optional<ops::DeltaState> state = std::move(row.state);
  kernels_.advance_delta({first(inputs.qkv), b, b, first(inputs.a)}, *mixer_, std::span(&slice, 1),
                         std::span(&state, 1));
  row.state = std::move(state);
  row.len += num;
}

bool RecurrentCache::can_rollback(int slot, int len) const {
  const Row& row = rows_.at(slot);
  if (len == row.len || len == 0) return true;
  if (!row.round || !row.round->stepped) return false;
  return len == row.round->len || (row.round->inputs && len > row.round->len && len < row.len);
}

void RecurrentCache::rollback(int slot, int len) {
  Row& row = rows_.at(slot);
  if (!can_rollback(slot, len)) {
    const bool marked = row.round && row.round->stepped;
    refuse_rollback(len, row.len,
                    marked ? fmt::format("{} (the mark){}, or 0", row.round->len,
                                         row.round->inputs ? " and up" : "")
                           : "0: no marked step has come");
  }
  if (len == row.len) {
    row.round.reset();
    return;
  }
  if (len == 0) {
    row = {};
    return;
  }
  const Round round = std::move(*row.round);
  row = {round.before, round.len, std::nullopt};
  if (len > round.len) replay(row, *round.inputs, len - round.len);
}

Status RecurrentCache::load(int slot, const Snapshot& s) {
  Row& row = rows_.at(slot);
  TENON_OK(check_snapshot(s, signature(), 2, row.len));
  if (s.len == 0) return {};
  const auto numbers = [](const Snapshot::Part& part) {
    return part.bytes.size() / mx::size_of(part.dtype);
  };
  if (numbers(s.parts[0]) != conv_size() || numbers(s.parts[1]) != delta_size() ||
      s.parts[1].dtype != mx::float32)
    return corrupt("snapshot: a state of {} and {} numbers, not {} and {}", numbers(s.parts[0]),
                   numbers(s.parts[1]), conv_size(), delta_size());
  TENON_TRY(mx::array conv, from_part(s.parts[0], s.parts[0].shape, s.parts[0].dtype));
  TENON_TRY(mx::array delta, from_part(s.parts[1], s.parts[1].shape, s.parts[1].dtype));
  row.state = ops::DeltaState{std::move(conv), std::move(delta)};
  row.len = s.len;
  return {};
}

}  // namespace

Result<std::unique_ptr<LayerCache>> make_recurrent(const LayerPlan& plan,
                                                   const ops::Kernels& kernels) {
  const ops::DeltaShape& d = plan.delta;
  if (d.num_k_heads < 1 || d.num_v_heads < 1 || d.k_dim < 1 || d.v_dim < 1 || d.taps < 2)
    return invalid("cache kind recurrent needs the shape of a gated delta layer");
  return std::unique_ptr<LayerCache>(new RecurrentCache(plan, kernels));
}

}  // namespace tenon::cache
