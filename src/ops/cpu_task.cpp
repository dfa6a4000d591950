#include "ops/cpu_task.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include <stdexcept>

#include "base/handover.h"

namespace tenon::ops {

namespace {

constexpr size_t kAlign = 64;
constexpr size_t kBlockMin = size_t{1} << 16;

class CpuPrimitive final : public mx::Primitive {
 public:
  CpuPrimitive(const char* name, CpuContextPtr context, CpuCall call)
      : Primitive(mx::default_stream(mx::Device::cpu)),
        name_(name),
        context_(std::move(context)),
        call_(std::make_shared<const CpuCall>(std::move(call))) {}

  const char* name() const override { return name_; }
  bool is_equivalent(const Primitive&) const override { return false; }

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const mx::array& a : inputs) {
      if (!a.flags().row_contiguous)
        throw std::invalid_argument(fmt::format("[{}] an input is not contiguous", name_));
      in.push_back(a.data<void>());
    }
    for (mx::array& a : outputs) {
      a.set_data(mx::allocator::malloc(a.nbytes()));
      out.push_back(a.data<void>());
    }
    // MLX keeps the buffers alive until the task is done.
    mx::cpu::get_command_encoder(stream()).dispatch([context = context_, call = call_,
                                                     in = std::move(in), out = std::move(out),
                                                     handover = Handover()] {
      [[maybe_unused]] const Handover::Taken taken = handover.taken();
      context->scratch.reset();
      (*call)({*context, in, out});
    });
  }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(fmt::format("[{}] this kernel runs on the CPU only", name_));
  }

 private:
  const char* name_;
  CpuContextPtr context_;
  std::shared_ptr<const CpuCall> call_;
};

}  // namespace

Scratch::Block Scratch::make_block(size_t size) {
  return {std::make_unique_for_overwrite<std::byte[]>(size + kAlign), size};
}

void Scratch::reset() {
  used_ = 0;
  if (blocks_.size() <= 1) return;
  size_t total = 0;
  for (const Block& b : blocks_) total += b.size;
  blocks_.clear();
  blocks_.push_back(make_block(total));
}

std::byte* Scratch::take_bytes(size_t size) {
  size = (size + kAlign - 1) / kAlign * kAlign;
  if (blocks_.empty() || used_ + size > blocks_.back().size) {
    blocks_.push_back(make_block(std::max(size, kBlockMin)));
    used_ = 0;
  }
  std::byte* memory = blocks_.back().memory.get();
  const size_t skip = (kAlign - reinterpret_cast<uintptr_t>(memory) % kAlign) % kAlign;
  std::byte* at = memory + skip + used_;
  used_ += size;
  return at;
}

std::vector<mx::array> cpu_call(const char* name, const CpuContextPtr& context,
                                std::vector<mx::array> inputs, std::vector<mx::Shape> shapes,
                                CpuCall call) {
  const std::vector<mx::Dtype> dtypes(shapes.size(), mx::float32);
  auto primitive = std::make_shared<CpuPrimitive>(name, context, std::move(call));
  return mx::array::make_arrays(std::move(shapes), dtypes, primitive, std::move(inputs));
}

}  // namespace tenon::ops
