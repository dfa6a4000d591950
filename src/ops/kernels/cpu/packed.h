// A weight matrix [out, in] in the order the kernels read it: tiles of 16 outputs, in a tile group
// after group of `in`, in a group lines of 64 bytes that hold one 32-bit word for each output. So a
// thread reads one ascending stream, and a vector lane is an output whatever the vector's width.
//
// Every format is repacked once at load, as exactly the bits it stores (codes and scales are moved,
// never rounded), and the mapped source pages are given back as they are consumed: peak memory is
// one copy plus a tile. Reading GGUF blocks in place would put a horizontal sum behind every block.
//
// Integer codes of 1..8 bits are split in planes of 2, 4 or 8 bits plus a rest of 1 or 2:
//   3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2.
// A plane's word holds 32 / bits codes; pair j of it (codes 2j and 2j + 1) lies in bits [bits*j,
// bits*j + bits) of its low and its high half.
//   w = scale * (code - zero) + min
// Owner: the matrix owns its memory. Thread: immutable once packed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/weight.h"

namespace tenon::cpu {

constexpr int kTileOutputs = 16;
constexpr int kLineBytes = 64;
constexpr int kSuperBlock = 256;  // of the two-level formats
constexpr int kGroupMax = 128;
constexpr int kDenseGroup = 64;  // partial sums of matrices without groups of their own

enum class CodeType {
  integer,
  fp4,  // e2m1: the values {0, .5, 1, 1.5, 2, 3, 4, 6} and their negatives, times two as integers
  fp8,  // e4m3
  f32,
  f16,
  bf16,
};
enum class ScaleType {
  none,
  f32,
  f16,
  bf16,
  two_level,  // int8 a group times f16 a super-block
};

struct Packing {
  CodeType code = CodeType::f32;
  int bits = 32;  // of a code
  int group = kDenseGroup;
  int zero = 0;
  ScaleType scale = ScaleType::none;
  bool has_min = false;

  bool is_integer() const { return code == CodeType::integer || code == CodeType::fp4; }
  int plane_bits() const { return bits >= 8 ? 8 : bits >= 4 ? 4 : 2; }
  int rest_bits() const { return bits - plane_bits(); }
  size_t scale_bytes() const;  // of one group's scales or minima, all 16 outputs
  size_t group_bytes() const;  // codes, scales, minima
  size_t super_bytes() const;  // in front of every super-block; 0 but for two_level
  size_t tile_bytes(int in) const;
  bool operator==(const Packing&) const = default;
};

// One group of one output, as a stored format holds it.
struct StoredGroup {
  uint8_t codes[kSuperBlock];  // integer codes, or the bytes of float codes
  float scale = 0, min = 0;  // exactly representable in the packing's ScaleType
  int8_t scale_code = 0, min_code = 0;  // two_level
  float super_scale = 0, super_min = 0;  // two_level, of the group's super-block
};

class PackedMatrix {
 public:
  PackedMatrix(const Packing& packing, int out, int in);
  const Packing packing;
  const int out, in;
  const size_t tile_bytes;
  std::vector<float> bias;  // [out] or empty

  int num_tiles() const { return (out + kTileOutputs - 1) / kTileOutputs; }
  const std::byte* tile(int i) const { return data_.get() + i * tile_bytes; }
  std::byte* tile(int i) { return data_.get() + i * tile_bytes; }
  size_t bytes() const { return num_tiles() * tile_bytes + bias.size() * sizeof(float); }
  // visit(group, index of the group, its first element, its length) for each group of one output,
  // with a two-level scale already multiplied out.
  void visit_row(int row,
                 const std::function<void(const StoredGroup&, int, int, int)>& visit) const;
  // One output's weights as floats, as the formula above says: for embeddings.
  void unpack_row(int row, float* values) const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

// Reads a stored matrix group by group; sources.cpp has one for each format.
struct GroupReader {
  Packing packing;
  int64_t out = 0, in = 0;
  std::function<void(int64_t row, int64_t group, StoredGroup& out)> read;
  std::function<void(int64_t row, int64_t end)> done;  // rows that are not read again; may be empty
};
// Errors, naming the tensor: unsupported (its format), corrupt (shape, bytes or parts that do not
// agree), too_large (dimension past 2^31).
Result<GroupReader> group_reader(const LinearSource& source);
// One row's weights as floats; product and sum are rounded apart, as ggml and MLX dequantize.
void dequantize_row(const GroupReader& reader, int64_t row, float* values);

// A dense vector as floats. Errors: unsupported.
Result<std::vector<float>> read_floats(const WeightView& view);

// run(n, work) calls work(i) for i in [0, n), on any threads.
using ParallelFor = std::function<void(int n, const std::function<void(int)>& work)>;
std::shared_ptr<PackedMatrix> pack_groups(const GroupReader& reader, const ParallelFor& run);
// The same from a stored matrix with its bias; mapped source pages are given back.
// Errors: those of group_reader and read_floats.
Result<std::shared_ptr<const PackedMatrix>> pack(const LinearSource& source,
                                                 const ParallelFor& run);

}  // namespace tenon::cpu
