// Mixtures of experts on the CPU, one primitive a layer (declared in cpu_kernels.h). Tokens are
// gathered by expert, so an expert's weights are read once a step; every token's outputs are summed
// by ascending expert, so who else came to an expert does not show.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "ops/cpu_kernels.h"
#include "ops/cpu_rows.h"

namespace tenon::ops {

namespace {

class CpuExperts final : public Experts {
 public:
  explicit CpuExperts(std::vector<PackedPtr> packed_) : packed(std::move(packed_)) {
    num = static_cast<int>(packed.size());
    out = packed[0]->out;
    in = packed[0]->in;
    for (const PackedPtr& p : packed) bytes += p->bytes();
  }
  const std::vector<PackedPtr> packed;
};

std::vector<PackedPtr> packed_of(const ExpertsPtr& experts) {
  return static_cast<const CpuExperts&>(*experts).packed;
}

// One token at one of its experts.
struct Visit {
  int expert, token;
  float weight;
};

class MoeTask {
 public:
  std::vector<PackedPtr> gate, up, down;
  PackedPtr router;
  CpuNorm norm, router_norm;
  CpuJoin join;
  int expert_scale = -1;  // input
  int top_k = 1, num_rows = 0;
  bool softmax_of_all = true, renormalize = false;
  cpu::Activation activation{};

  void run(const CpuArgs& a) const {
    // Quantized once for the router and all experts where the forms agree.
    std::vector<const cpu::PackedMatrix*> readers;
    for (const auto* stack : {&gate, &up})
      for (const PackedPtr& p : *stack) readers.push_back(p.get());
    if (!router_norm.present) readers.push_back(router.get());
    const Operand rows = norm_rows(a, a.x(0), norm, num_rows, up[0]->in, readers);
    const std::vector<Visit> visits = route(a, rows);
    mix(a, visits, visit(a, rows, visits));
    join_rows(a, join, a.x(0), a.y(0), num_rows, down[0]->out);
  }

 private:
  int num_experts() const { return static_cast<int>(up.size()); }

  // Who goes where, by ascending expert and then token.
  std::vector<Visit> route(const CpuArgs& a, const Operand& rows) const {
    CpuContext& c = a.context;
    float* scores = c.scratch.take<float>(static_cast<size_t>(num_rows) * num_experts());
    const Product product{router.get(), scores, num_experts()};
    if (router_norm.present)
      multiply(c, norm_rows(a, a.x(0), router_norm, num_rows, router->in, {{router.get()}}),
               {&product, 1});
    else
      multiply(c, rows, {&product, 1});
    std::vector<Visit> visits(static_cast<size_t>(num_rows) * top_k);
    spread(c, num_rows, row_cost_ns(4 * num_experts()), [&](int r) {
      choose(a, scores + static_cast<size_t>(r) * num_experts(), r,
             visits.data() + static_cast<size_t>(r) * top_k);
    });
    std::stable_sort(visits.begin(), visits.end(),
                     [](const Visit& p, const Visit& q) { return p.expert < q.expert; });
    return visits;
  }

  // One token's experts by ascending number, and their weights.
  void choose(const CpuArgs& a, float* scores, int token, Visit* visits) const {
    const cpu::Table& t = *a.context.table;
    if (softmax_of_all) t.softmax(scores, num_experts(), scores);
    thread_local std::vector<int> ids;
    thread_local std::vector<float> weights;
    ids.resize(top_k);
    weights.resize(top_k);
    cpu::top_k(scores, num_experts(), top_k, ids.data());
    std::sort(ids.begin(), ids.end());
    for (int i = 0; i < top_k; ++i) weights[i] = scores[ids[i]];
    if (!softmax_of_all) t.softmax(weights.data(), top_k, weights.data());
    if (renormalize) {
      const float sum = std::accumulate(weights.begin(), weights.end(), 0.0f);
      for (float& w : weights) w /= sum;
    }
    for (int i = 0; i < top_k; ++i) {
      const float factor = expert_scale < 0 ? 1.0f : a.x(expert_scale)[ids[i]];
      visits[i] = {ids[i], token, weights[i] * factor};
    }
  }

  // The experts' outputs, one row a visit.
  const float* visit(const CpuArgs& a, const Operand& rows, std::span<const Visit> visits) const {
    CpuContext& c = a.context;
    const int n = static_cast<int>(visits.size()), width = up[0]->out, out = down[0]->out;
    std::vector<int> tokens(n);
    std::transform(visits.begin(), visits.end(), tokens.begin(),
                   [](const Visit& v) { return v.token; });
    float* ups = c.scratch.take<float>(static_cast<size_t>(n) * width);
    float* gates = c.scratch.take<float>(static_cast<size_t>(n) * width);
    std::vector<Product> products = products_of(visits, up, ups);
    const std::vector<Product> more = products_of(visits, gate, gates);
    products.insert(products.end(), more.begin(), more.end());
    multiply(c, rows.gather(c, tokens), products);

    std::vector<const cpu::PackedMatrix*> readers;
    for (const PackedPtr& p : down) readers.push_back(p.get());
    Operand hidden(c, n, width, readers);
    spread(c, n, row_cost_ns(2 * width), [&](int i) {
      float* u = ups + static_cast<size_t>(i) * width;
      c.table->gated(activation, gates + static_cast<size_t>(i) * width, u, width, u);
      hidden.fill(i, u);
    });
    float* outs = c.scratch.take<float>(static_cast<size_t>(n) * out);
    multiply(c, hidden, products_of(visits, down, outs));
    return outs;
  }

  // One product for each expert that somebody visits.
  static std::vector<Product> products_of(std::span<const Visit> visits,
                                          const std::vector<PackedPtr>& experts, float* out) {
    std::vector<Product> products;
    for (int i = 0; i < static_cast<int>(visits.size()); ++i) {
      if (i == 0 || visits[i].expert != visits[i - 1].expert)
        products.push_back(
            {experts[visits[i].expert].get(), out, experts[visits[i].expert]->out, i, 0});
      ++products.back().num_rows;
    }
    return products;
  }

  // y[token] = sum of weight * output over its visits, which come by ascending expert.
  void mix(const CpuArgs& a, std::span<const Visit> visits, const float* outs) const {
    const int n = down[0]->out;
    std::vector<int> of_token(static_cast<size_t>(num_rows) * top_k), seen(num_rows, 0);
    for (int i = 0; i < static_cast<int>(visits.size()); ++i) {
      const int token = visits[i].token;
      of_token[static_cast<size_t>(token) * top_k + seen[token]++] = i;
    }
    spread(a.context, num_rows, row_cost_ns(top_k * n), [&](int r) {
      float* y = a.y(0) + static_cast<size_t>(r) * n;
      std::fill_n(y, n, 0.0f);
      for (int i = 0; i < top_k; ++i) {
        const int at = of_token[static_cast<size_t>(r) * top_k + i];
        a.context.table->add_scaled(visits[at].weight, outs + static_cast<size_t>(at) * n, n, y);
      }
    });
  }
};

}  // namespace

ExpertsPtr CpuKernels::load_experts(std::span<const LinearSource> experts, mx::Dtype dtype) const {
  std::vector<PackedPtr> packed;
  for (const LinearSource& source : experts) {
    packed.push_back(tenon::ops::packed_of(*load_matrix(source, dtype)));
    if (packed.back()->out != packed[0]->out || packed.back()->in != packed[0]->in)
      throw std::runtime_error(
          fmt::format("[load] {}: the experts of a layer differ in shape", source.weight.name));
  }
  if (packed.empty()) throw std::runtime_error("[load] a layer has no experts");
  return std::make_shared<CpuExperts>(std::move(packed));
}

mx::array CpuKernels::feed_forward(const mx::array& x, const Moe& block) const {
  const Router& router = block.router;
  CpuInputs inputs{{x}};
  MoeTask task;
  task.gate = packed_of(block.gate);
  task.up = packed_of(block.up);
  task.down = packed_of(block.down);
  task.router = tenon::ops::packed_of(*router.gate);
  task.norm = inputs.add(block.norm);
  task.router_norm = inputs.add(router.norm);
  task.join = inputs.add(block.join);
  if (router.expert_scale) task.expert_scale = inputs.add(*router.expert_scale);
  task.top_k = router.top_k;
  task.num_rows = x.shape(0);
  task.softmax_of_all = router.weights == Router::Weights::softmax_of_all;
  task.renormalize = router.renormalize;
  task.activation = cpu_activation(block.activation);
  return cpu_call("moe", context_, std::move(inputs.arrays), {x.shape()},
                  [task = std::make_shared<const MoeTask>(std::move(task))](const CpuArgs& a) {
                    task->run(a);
                  })[0];
}

}  // namespace tenon::ops
