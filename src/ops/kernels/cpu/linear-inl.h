// The inner loops of linear.cpp, compiled once a target.
#include <utility>

#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Rows that share one decoded vector: as many as have room for their sums. A fused product and sum
// takes five cycles, so fewer than that many sums would wait for each other.
constexpr int kRowsMax = kVectors == 1 ? 8 : 4;
// How far ahead of a tile's first pass lines are asked for: about the latency of memory times the
// rate of one core.
constexpr int kPrefetchBytes = 2048;

// A sum that is made here and now: GCC would rather make all products of a step first and keep them
// in memory, since integer sums may be taken in any order.
HWY_INLINE VI pinned(VI sum) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86
  __asm__("" : "+v"(sum.raw));
#endif
  return sum;
}

// Adds products of neighbouring 16-bit pairs, one sum a 32-bit lane.
HWY_INLINE VI add_pair_products(VI sum, hn::Vec<I16> a, hn::Vec<I16> b) {
  VI odd = hn::Zero(I32());
#if HWY_ARCH_X86
  // One instruction, pairs in order.
  return pinned(hn::ReorderWidenMulAccumulate(I32(), a, b, sum, odd));
#else
  const VI even = hn::ReorderWidenMulAccumulate(I32(), a, b, hn::Zero(I32()), odd);
  return hn::Add(sum, hn::RearrangeToOddPlusEven(even, odd));
#endif
}

// Integer codes in planes (packed.h): pair kPair of a step of kStep codes, as 16-bit lanes.
template <int kPlane, int kRest, bool kFp4>
struct Codes {
  static constexpr int kStep = kRest == 1 ? 32 : 16;
  // Bytes of `codes` codes of all outputs in each plane.
  static constexpr size_t plane_bytes(int codes) { return size_t{kPlane} * codes / 8 * kLanes; }
  static constexpr size_t rest_bytes(int codes) { return size_t{kRest} * codes / 8 * kLanes; }

  template <int kBits, int kPair>
  static HWY_INLINE hn::Vec<U16> extract(const uint8_t* lines, int vector) {
    const U16 d;
    constexpr int kPairsPerLine = 16 / kBits;
    const auto raw =
        hn::BitCast(d, hn::LoadU(I32(), reinterpret_cast<const int32_t*>(lines) +
                                            (kPair / kPairsPerLine) * kLanes + vector * kWidth));
    constexpr int kShift = kBits * (kPair % kPairsPerLine);
    if constexpr (kShift + kBits == 16) return hn::ShiftRight<kShift>(raw);
    const auto mask = hn::Set(d, (1 << kBits) - 1);
    if constexpr (kShift == 0) return hn::And(raw, mask);
    return hn::And(hn::ShiftRight<kShift>(raw), mask);
  }

  template <int kPair>
  static HWY_INLINE hn::Vec<I16> pair(const uint8_t* plane, const uint8_t* rest, int vector) {
    auto codes = extract<kPlane, kPair>(plane, vector);
    if constexpr (kRest > 0)
      codes = hn::Or(codes, hn::ShiftLeft<kPlane>(extract<kRest, kPair>(rest, vector)));
    if constexpr (kFp4) return fp4(codes);
    return hn::BitCast(I16(), codes);
  }

  // Table look-up works on bytes: values sit twelve higher to be unsigned, and lanes' upper bytes,
  // which look up code 0, are masked off.
  static HWY_INLINE hn::Vec<I16> fp4(hn::Vec<U16> codes) {
    const hn::Repartition<uint8_t, I32> d8;
    alignas(16) static constexpr uint8_t kRaised[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                        12, 11, 10, 9,  8,  6,  4,  0};
    const auto raised = hn::TableLookupBytes(hn::LoadDup128(d8, kRaised), hn::BitCast(d8, codes));
    const auto low = hn::And(hn::BitCast(U16(), raised), hn::Set(U16(), 0xFF));
    return hn::Sub(hn::BitCast(I16(), low), hn::Set(I16(), 12));
  }
};

template <class Format, int kRows, int kPair>
HWY_INLINE void add_pair(const uint8_t* plane, const uint8_t* rest, const int16_t* const* x, int at,
                         VI (&sums)[kRows][kVectors]) {
  hn::Vec<I16> codes[kVectors];
  TENON_UNROLL for (int v = 0; v < kVectors; ++v) codes[v] =
      Format::template pair<kPair>(plane, rest, v);
  TENON_UNROLL for (int m = 0; m < kRows; ++m) {
    int32_t two;
    std::memcpy(&two, x[m] + at + 2 * kPair, sizeof(two));
    const auto both = hn::BitCast(I16(), hn::Set(I32(), two));
    TENON_UNROLL for (int v = 0; v < kVectors; ++v) sums[m][v] =
        add_pair_products(sums[m][v], codes[v], both);
  }
}

template <class Format, int kRows, int... kPairs>
HWY_INLINE void add_step(std::integer_sequence<int, kPairs...>, const uint8_t* plane,
                         const uint8_t* rest, const int16_t* const* x, int at,
                         VI (&sums)[kRows][kVectors]) {
  (add_pair<Format, kRows, kPairs>(plane, rest, x, at, sums), ...);
}

// All 16 outputs' scales (or minima) of one group.
HWY_INLINE void load_scales(ScaleType type, const uint8_t* at, VF (&scales)[kVectors]) {
  switch (type) {
    case ScaleType::f16:
      TENON_UNROLL for (int v = 0; v < kVectors; ++v) scales[v] = load_half(at + v * kWidth * 2);
      return;
    case ScaleType::bf16:
      TENON_UNROLL for (int v = 0; v < kVectors; ++v) scales[v] = load_brain(at + v * kWidth * 2);
      return;
    case ScaleType::f32:
      TENON_UNROLL for (int v = 0; v < kVectors; ++v) scales[v] =
          load(reinterpret_cast<const float*>(at) + v * kWidth);
      return;
    case ScaleType::two_level:
      TENON_UNROLL for (int v = 0; v < kVectors; ++v) {
        const auto codes =
            hn::LoadU(hn::Rebind<int8_t, F32>(), reinterpret_cast<const int8_t*>(at) + v * kWidth);
        scales[v] = hn::ConvertTo(F32(), hn::PromoteTo(I32(), codes));
      }
      return;
    default:  // none: not used, but GCC cannot tell
      TENON_UNROLL for (int v = 0; v < kVectors; ++v) scales[v] = hn::Zero(F32());
  }
}

// Two-level scales: a group's, times its super-block's half.
HWY_INLINE void times_super(const uint8_t* supers, VF (&scales)[kVectors]) {
  TENON_UNROLL for (int v = 0; v < kVectors; ++v) scales[v] =
      hn::Mul(load_half(supers + v * kWidth * 2), scales[v]);
}

// One group's integer sums, scaled and added to `acc`. With few rows `acc` stays in registers: its
// chain of additions would otherwise wait for memory.
template <int kRows>
HWY_INLINE void join_group(const Packing& p, size_t scale_bytes, const uint8_t* scales,
                           const uint8_t* supers, const QuantizedRow* rows, int g,
                           const VI (&sums)[kRows][kVectors], VF (&acc)[kRows][kVectors]) {
  const F32 d;
  VF scale[kVectors], min[kVectors];
  load_scales(p.scale, scales, scale);
  if (supers != nullptr) times_super(supers, scale);
  load_scales(p.has_min ? p.scale : ScaleType::none, scales + scale_bytes, min);
  if (p.has_min && supers != nullptr) times_super(supers + 2 * kLanes, min);
  TENON_UNROLL for (int m = 0; m < kRows; ++m) {
    const VF row_scale = hn::Set(d, rows[m].scale[g]);
    TENON_UNROLL for (int v = 0; v < kVectors; ++v) acc[m][v] =
        hn::MulAdd(hn::Mul(scale[v], row_scale), hn::ConvertTo(d, sums[m][v]), acc[m][v]);
    if (!p.has_min) continue;
    const VF row_sum = hn::Set(d, rows[m].sum[g]);
    TENON_UNROLL for (int v = 0; v < kVectors; ++v) acc[m][v] =
        hn::MulAdd(min[v], row_sum, acc[m][v]);
  }
}

template <class Format, int kRows>
void integer_tile(const PackedMatrix& w, int tile, bool cold, const QuantizedRow* rows,
                  const float*, int, float (*out)[kLanes]) {
  const Packing& p = w.packing;
  const auto* at = reinterpret_cast<const uint8_t*>(w.tile(tile));
  const uint8_t* supers = nullptr;
  const int16_t* x[kRows];
  for (int m = 0; m < kRows; ++m) x[m] = rows[m].codes;
  const int group = p.group, zero = p.zero;
  const size_t plane_bytes = Format::plane_bytes(group), rest_bytes = Format::rest_bytes(group);
  const size_t group_bytes = p.group_bytes(), scale_bytes = p.scale_bytes();
  const size_t super_bytes = p.super_bytes();
  VF acc[kRows][kVectors];
  TENON_UNROLL for (int m = 0; m < kRows; ++m) TENON_UNROLL for (int v = 0; v < kVectors; ++v)
      acc[m][v] = hn::Zero(F32());
  for (int g = 0, k = 0; k < w.in; ++g, k += group) {
    if (super_bytes > 0 && k % kSuperBlock == 0) {
      supers = at;
      at += super_bytes;
    }
    if (cold)
      for (size_t ahead = 0; ahead < group_bytes; ahead += kLineBytes)
        __builtin_prefetch(at + kPrefetchBytes + ahead);
    VI sums[kRows][kVectors];
    TENON_UNROLL for (int m = 0; m < kRows; ++m) TENON_UNROLL for (int v = 0; v < kVectors; ++v)
        sums[m][v] = hn::Set(I32(), -zero * rows[m].code_sum[g]);
    const uint8_t* rest = at + plane_bytes;
    for (int s = 0; s < group; s += Format::kStep) {
      constexpr std::make_integer_sequence<int, Format::kStep / 2> kPairs;
      add_step<Format, kRows>(kPairs, at + Format::plane_bytes(s), rest + Format::rest_bytes(s), x,
                              k + s, sums);
    }
    join_group<kRows>(p, scale_bytes, rest + rest_bytes, supers, rows, g, sums, acc);
    at += group_bytes;
  }
  TENON_UNROLL for (int m = 0; m < kRows; ++m) TENON_UNROLL for (int v = 0; v < kVectors; ++v)
      store(acc[m][v], out[m] + v * kWidth);
}

template <CodeType kCode>
HWY_INLINE VF load_weights(const uint8_t* at) {
  if constexpr (kCode == CodeType::f32) return load(reinterpret_cast<const float*>(at));
  if constexpr (kCode == CodeType::f16) return load_half(at);
  if constexpr (kCode == CodeType::bf16) return load_brain(at);
  // e4m3 as a float16 with four exponent bits, 2^8 too small.
  const hn::Rebind<uint16_t, F32> d16;
  const auto code = hn::PromoteTo(d16, hn::LoadU(hn::Rebind<uint8_t, F32>(), at));
  const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(d16, 0x80)));
  const auto rest = hn::ShiftLeft<7>(hn::And(code, hn::Set(d16, 0x7F)));
  return hn::Mul(hn::PromoteTo(F32(), hn::BitCast(F16(), hn::Or(sign, rest))),
                 hn::Set(F32(), 256.0f));
}

template <CodeType kCode, int kRows>
void float_tile(const PackedMatrix& w, int tile, bool cold, const QuantizedRow*, const float* x,
                int x_stride, float (*acc)[kLanes]) {
  const F32 d;
  const Packing& p = w.packing;
  const int width = p.bits / 8;
  const auto* at = reinterpret_cast<const uint8_t*>(w.tile(tile));
  for (int begin = 0; begin < w.in; begin += p.group) {
    const int end = begin + p.group < w.in ? begin + p.group : w.in;
    VF part[kRows][kVectors];
    TENON_UNROLL for (int m = 0; m < kRows; ++m) TENON_UNROLL for (int v = 0; v < kVectors; ++v)
        part[m][v] = hn::Zero(d);
    for (int k = begin; k < end; ++k, at += kLanes * width) {
      if (cold) __builtin_prefetch(at + kPrefetchBytes);
      TENON_UNROLL for (int v = 0; v < kVectors; ++v) {
        const VF weights = load_weights<kCode>(at + v * kWidth * width);
        TENON_UNROLL for (int m = 0; m < kRows; ++m) part[m][v] =
            hn::MulAdd(weights, hn::Set(d, x[m * x_stride + k]), part[m][v]);
      }
    }
    VF scale[kVectors];
    load_scales(p.scale, at, scale);
    TENON_UNROLL for (int m = 0; m < kRows; ++m) TENON_UNROLL for (int v = 0; v < kVectors; ++v) {
      const VF sum = load(acc[m] + v * kWidth);
      store(p.scale == ScaleType::none ? hn::Add(sum, part[m][v])
                                       : hn::MulAdd(scale[v], part[m][v], sum),
            acc[m] + v * kWidth);
    }
    at += p.scale_bytes();
  }
}

// cold: the tile's lines are still in memory; a later pass finds them in the cache.
using TileFunction = void (*)(const PackedMatrix& w, int tile, bool cold, const QuantizedRow* rows,
                              const float* x, int x_stride, float (*acc)[kLanes]);

template <class Format, int... kRows>
TileFunction integer_function(int rows, std::integer_sequence<int, kRows...>) {
  constexpr TileFunction kFunctions[] = {integer_tile<Format, kRows + 1>...};
  return kFunctions[rows - 1];
}
template <CodeType kCode, int... kRows>
TileFunction float_function(int rows, std::integer_sequence<int, kRows...>) {
  constexpr TileFunction kFunctions[] = {float_tile<kCode, kRows + 1>...};
  return kFunctions[rows - 1];
}

inline TileFunction tile_function(const Packing& p, int rows) {
  constexpr std::make_integer_sequence<int, kRowsMax> kRows;
  switch (p.code) {
    case CodeType::f32: return float_function<CodeType::f32>(rows, kRows);
    case CodeType::f16: return float_function<CodeType::f16>(rows, kRows);
    case CodeType::bf16: return float_function<CodeType::bf16>(rows, kRows);
    case CodeType::fp8: return float_function<CodeType::fp8>(rows, kRows);
    case CodeType::fp4: return integer_function<Codes<4, 0, true>>(rows, kRows);
    case CodeType::integer: break;
  }
  switch (p.bits) {
    case 2: return integer_function<Codes<2, 0, false>>(rows, kRows);
    case 3: return integer_function<Codes<2, 1, false>>(rows, kRows);
    case 4: return integer_function<Codes<4, 0, false>>(rows, kRows);
    case 5: return integer_function<Codes<4, 1, false>>(rows, kRows);
    case 6: return integer_function<Codes<4, 2, false>>(rows, kRows);
    default: return integer_function<Codes<8, 0, false>>(rows, kRows);
  }
}

inline void linear(const LinearArgs& a) {
  const PackedMatrix& w = *a.w;
  for (int tile = a.tile_begin; tile < a.tile_end; ++tile) {
    const int first = tile * kTileOutputs;
    const int count = w.out - first < kTileOutputs ? w.out - first : kTileOutputs;
    for (int m = 0; m < a.rows; m += kRowsMax) {
      const int rows = a.rows - m < kRowsMax ? a.rows - m : kRowsMax;
      alignas(64) float acc[kRowsMax][kLanes] = {};
      const float* x = a.x == nullptr ? nullptr : a.x + static_cast<size_t>(m) * a.x_stride;
      tile_function(w.packing, rows)(w, tile, m == 0, a.quantized + m, x, a.x_stride, acc);
      for (int r = 0; r < rows; ++r) {
        float* out = a.out + static_cast<size_t>(m + r) * a.out_stride + first;
        for (int o = 0; o < count; ++o)
          out[o] = w.bias.empty() ? acc[r][o] : acc[r][o] + w.bias[first + o];
      }
    }
  }
}

inline void fill_linear(Table& table) { table.linear = linear; }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
