// GGUF blocks, group by group. A block of a two-level format (q*_k) is a super-block of 256.
// Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h, and the dequantizers of
// ggml-quants.c beside it for the order of elements.
#include <cstring>

#include "ops/kernels/cpu/half.h"
#include "ops/kernels/cpu/sources.h"

namespace tenon::cpu {

namespace {

constexpr int kBlock = 32;

const uint8_t* bytes_at(const std::byte* block, int offset) {
  return reinterpret_cast<const uint8_t*>(block) + offset;
}

// Elements [0, 16) in the low halves of 16 bytes, [16, 32) in the high ones.
void read_nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int j = 0; j < kBlock / 2; ++j) {
    codes[j] = qs[j] & 15;
    codes[j + kBlock / 2] = qs[j] >> 4;
  }
}

void add_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, qh, sizeof(bits));
  for (int j = 0; j < kBlock; ++j) codes[j] |= static_cast<uint8_t>((bits >> j & 1) << 4);
}

void read_q4_0(const std::byte* block, int, StoredGroup& out) {
  out.scale = load_f16(block);
  read_nibbles(bytes_at(block, 2), out.codes);
}

void read_q4_1(const std::byte* block, int, StoredGroup& out) {
  out.scale = load_f16(block);
  out.min = load_f16(block + 2);
  read_nibbles(bytes_at(block, 4), out.codes);
}

void read_q5_0(const std::byte* block, int, StoredGroup& out) {
  out.scale = load_f16(block);
  read_nibbles(bytes_at(block, 6), out.codes);
  add_fifth_bits(bytes_at(block, 2), out.codes);
}

void read_q5_1(const std::byte* block, int, StoredGroup& out) {
  out.scale = load_f16(block);
  out.min = load_f16(block + 2);
  read_nibbles(bytes_at(block, 8), out.codes);
  add_fifth_bits(bytes_at(block, 4), out.codes);
}

// Signed bytes; flipping the top bit adds 128.
void read_q8_0(const std::byte* block, int, StoredGroup& out) {
  out.scale = load_f16(block);
  const uint8_t* qs = bytes_at(block, 2);
  for (int j = 0; j < kBlock; ++j) out.codes[j] = qs[j] ^ 0x80;
}

// Where group `group` of 16 lies in a super-block of two halves: each half has four quarters of 32
// elements, which share bytes (a quarter's bits sit above those of the quarter before).
struct Place {
  int half, quarter, first;
  explicit Place(int group) : half(group / 8), quarter(group % 8 / 2), first(group % 2 * 16) {}
};
constexpr int kSmallGroup = 16;

void read_q2_k(const std::byte* block, int group, StoredGroup& out) {
  const Place at(group);
  const uint8_t scales = *bytes_at(block, group);
  const uint8_t* qs = bytes_at(block, 16 + at.half * 32 + at.first);
  for (int j = 0; j < kSmallGroup; ++j) out.codes[j] = qs[j] >> (2 * at.quarter) & 3;
  out.scale_code = scales & 15;
  out.min_code = static_cast<int8_t>(-(scales >> 4));
  out.super_scale = load_f16(block + 80);
  out.super_min = load_f16(block + 82);
}

void read_q3_k(const std::byte* block, int group, StoredGroup& out) {
  const Place at(group);
  const uint8_t* high = bytes_at(block, at.first);
  const uint8_t* qs = bytes_at(block, 32 + at.half * 32 + at.first);
  const uint8_t* scales = bytes_at(block, 96);
  for (int j = 0; j < kSmallGroup; ++j)
    out.codes[j] = static_cast<uint8_t>((qs[j] >> (2 * at.quarter) & 3) |
                                        (high[j] >> (4 * at.half + at.quarter) & 1) << 2);
  const int low = scales[group % 8] >> (group / 8 * 4) & 15;
  const int top = scales[8 + group % 4] >> (group / 4 * 2) & 3;
  out.scale_code = static_cast<int8_t>((low | top << 4) - 32);
  out.super_scale = load_f16(block + 108);
}

// q4_k and q5_k: eight 6-bit scales and minima in 12 bytes; the last four of each kind lend their
// upper two bits to the first bytes.
void read_two_levels(const std::byte* block, int group, StoredGroup& out) {
  const uint8_t* s = bytes_at(block, 4);
  int scale, min;
  if (group < 4) {
    scale = s[group] & 63;
    min = s[group + 4] & 63;
  } else {
    scale = (s[group + 4] & 15) | s[group - 4] >> 6 << 4;
    min = s[group + 4] >> 4 | s[group] >> 6 << 4;
  }
  out.scale_code = static_cast<int8_t>(scale);
  out.min_code = static_cast<int8_t>(-min);
  out.super_scale = load_f16(block);
  out.super_min = load_f16(block + 2);
}

void read_q4_k(const std::byte* block, int group, StoredGroup& out) {
  const uint8_t* qs = bytes_at(block, 16 + group / 2 * 32);
  for (int j = 0; j < kBlock; ++j) out.codes[j] = qs[j] >> (group % 2 * 4) & 15;
  read_two_levels(block, group, out);
}

void read_q5_k(const std::byte* block, int group, StoredGroup& out) {
  const uint8_t* high = bytes_at(block, 16);
  const uint8_t* qs = bytes_at(block, 48 + group / 2 * 32);
  for (int j = 0; j < kBlock; ++j)
    out.codes[j] =
        static_cast<uint8_t>((qs[j] >> (group % 2 * 4) & 15) | (high[j] >> group & 1) << 4);
  read_two_levels(block, group, out);
}

void read_q6_k(const std::byte* block, int group, StoredGroup& out) {
  const Place at(group);
  const uint8_t* low = bytes_at(block, at.half * 64 + at.quarter % 2 * 32 + at.first);
  const uint8_t* high = bytes_at(block, 128 + at.half * 32 + at.first);
  for (int j = 0; j < kSmallGroup; ++j)
    out.codes[j] = static_cast<uint8_t>((low[j] >> (at.quarter / 2 * 4) & 15) |
                                        (high[j] >> (2 * at.quarter) & 3) << 4);
  out.scale_code = static_cast<int8_t>(*bytes_at(block, 192 + group));
  out.super_scale = load_f16(block + 208);
}

constexpr Packing one_level(int bits, int zero, bool has_min) {
  return {CodeType::integer, bits, kBlock, zero, ScaleType::f16, has_min};
}
constexpr Packing two_level(int bits, int group, int zero, bool has_min) {
  return {CodeType::integer, bits, group, zero, ScaleType::two_level, has_min};
}

struct Row {
  Format format;
  BlockReader reader;
};
constexpr Row kRows[] = {
    {Format::q4_0, {one_level(4, 8, false), read_q4_0}},
    {Format::q4_1, {one_level(4, 0, true), read_q4_1}},
    {Format::q5_0, {one_level(5, 16, false), read_q5_0}},
    {Format::q5_1, {one_level(5, 0, true), read_q5_1}},
    {Format::q8_0, {one_level(8, 128, false), read_q8_0}},
    {Format::q2_k, {two_level(2, kSmallGroup, 0, true), read_q2_k}},
    // Three bits in the room of four: a plane of single bits needs groups of 32.
    {Format::q3_k, {two_level(4, kSmallGroup, 4, false), read_q3_k}},
    {Format::q4_k, {two_level(4, kBlock, 0, true), read_q4_k}},
    {Format::q5_k, {two_level(5, kBlock, 0, true), read_q5_k}},
    {Format::q6_k, {two_level(6, kSmallGroup, 32, false), read_q6_k}},
};

}  // namespace

const BlockReader* block_reader(Format format) {
  for (const Row& row : kRows)
    if (row.format == format) return &row.reader;
  return nullptr;
}

}  // namespace tenon::cpu
