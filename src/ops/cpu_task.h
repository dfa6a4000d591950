// A kernel call as an MLX primitive on the CPU. Building one costs an allocation or two and
// evaluating it one hand-off to MLX's stream thread (together 5-8 us), so calls are coarse.
// Thread: made on the engine's; `run` runs on the stream's, one at a time.
#pragma once
#include <functional>

#include "ops/kernels/cpu/cpu.h"
#include "ops/ops.h"

namespace tenon::ops {

// Memory that one kernel call uses and the next reuses: one stream runs calls one after the other.
class Scratch {
 public:
  // Empties it; memory handed out before is gone.
  void reset();
  // `count` elements aligned for vectors; valid until reset(). Contents are anything.
  template <class T>
  T* take(size_t count) {
    return reinterpret_cast<T*>(take_bytes(count * sizeof(T)));
  }

 private:
  std::byte* take_bytes(size_t size);
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    size_t size = 0;
  };
  static Block make_block(size_t size);
  std::vector<Block> blocks_;  // one, after a few calls
  size_t used_ = 0;            // of the last
};

// What all calls of one kernel family share.
struct CpuContext {
  const cpu::Table* table;
  cpu::Pool pool;
  Scratch scratch;
  CpuContext(const cpu::Table* t, int threads) : table(t), pool(threads) {}
};
using CpuContextPtr = std::shared_ptr<CpuContext>;

// What a call gets: its inputs' and outputs' memory, in order.
struct CpuArgs {
  CpuContext& context;
  std::vector<const void*> in;
  std::vector<void*> out;
  const float* x(int i) const { return static_cast<const float*>(in[i]); }
  float* y(int i) const { return static_cast<float*>(out[i]); }
};
using CpuCall = std::function<void(const CpuArgs&)>;

// Arrays that `call` computes from `inputs` (which must be row-contiguous when evaluated).
std::vector<mx::array> cpu_call(const char* name, const CpuContextPtr& context,
                                std::vector<mx::array> inputs, std::vector<mx::Shape> shapes,
                                CpuCall call);

}  // namespace tenon::ops
