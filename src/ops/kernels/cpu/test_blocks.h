// GGUF blocks decoded as ggml does (dequantize_row_* of ggml-quants.c), in double, where all the
// sums are exact: what the readers of this room are tested against. Header only. Source:
// https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/weight.h"

namespace tenon::cpu {

// The compiler's own, to check ours against.
#if defined(__aarch64__)
typedef __fp16 Half;  // GCC 12 has no _Float16 in C++ here
#else
__extension__ typedef _Float16 Half;
#endif

template <class T>
T bytes_as(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

inline double half_at(const uint8_t* at) { return static_cast<double>(bytes_as<Half>(at)); }

// The elements of one block.
using Decode = void (*)(const uint8_t* block, double* y);
struct BlockFormat {
  Format format;
  std::vector<int> halves;  // where a block has float16 scales
  Decode decode;
};

inline int nibble_of(const uint8_t* qs, int j) { return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4; }
inline int fifth_bit(const uint8_t* qh, int j) { return qh[j / 8] >> (j % 8) & 1; }

inline void scale_min_k4(int j, const uint8_t* q, int& scale, int& min) {
  scale = j < 4 ? q[j] & 63 : (q[j + 4] & 0xF) | ((q[j - 4] >> 6) << 4);
  min = j < 4 ? q[j + 4] & 63 : (q[j + 4] >> 4) | ((q[j] >> 6) << 4);
}

inline void decode_q2_k(const uint8_t* b, double* y) {
  const double d = half_at(b + 80), min = half_at(b + 82);
  const uint8_t *scales = b, *q = b + 16;
  for (int n = 0; n < 256; n += 128, q += 32)
    for (int shift = 0; shift < 8; shift += 2)
      for (int half = 0; half < 32; half += 16, ++scales)
        for (int l = half; l < half + 16; ++l)
          *y++ = d * (*scales & 15) * (q[l] >> shift & 3) - min * (*scales >> 4);
}

inline void decode_q3_k(const uint8_t* b, double* y) {
  const double d = half_at(b + 108);
  int scales[16];
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? b[96 + i] & 15 : b[96 + i - 8] >> 4;
    scales[i] = (low | (b[96 + 8 + i % 4] >> (2 * (i / 4)) & 3) << 4) - 32;
  }
  const uint8_t *q = b + 32, *hm = b;
  for (int is = 0, m = 1, n = 0; n < 256; n += 128, q += 32)
    for (int shift = 0; shift < 8; shift += 2, m <<= 1)
      for (int half = 0; half < 32; half += 16, ++is)
        for (int l = half; l < half + 16; ++l)
          *y++ = d * scales[is] * ((q[l] >> shift & 3) - ((hm[l] & m) ? 0 : 4));
}

inline void decode_q4_q5_k(const uint8_t* b, bool five, double* y) {
  const double d = half_at(b), min = half_at(b + 2);
  const uint8_t *qh = b + 16, *ql = five ? b + 48 : b + 16;
  for (int j = 0; j < 8; ++j) {
    int sc, m;
    scale_min_k4(j, b + 4, sc, m);
    for (int l = 0; l < 32; ++l) {
      const int low = j % 2 == 0 ? ql[j / 2 * 32 + l] & 15 : ql[j / 2 * 32 + l] >> 4;
      *y++ = d * sc * (low + (five && (qh[l] & 1 << j) ? 16 : 0)) - min * m;
    }
  }
}

inline void decode_q6_k(const uint8_t* b, double* y) {
  const double d = half_at(b + 208);
  const uint8_t *ql = b, *qh = b + 128;
  const auto* sc = reinterpret_cast<const int8_t*>(b + 192);
  for (int n = 0; n < 256; n += 128, y += 128, ql += 64, qh += 32, sc += 8)
    for (int l = 0; l < 32; ++l) {
      const int is = l / 16;
      y[l] = d * sc[is] * (((ql[l] & 15) | (qh[l] >> 0 & 3) << 4) - 32);
      y[l + 32] = d * sc[is + 2] * (((ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4) - 32);
      y[l + 64] = d * sc[is + 4] * (((ql[l] >> 4) | (qh[l] >> 4 & 3) << 4) - 32);
      y[l + 96] = d * sc[is + 6] * (((ql[l + 32] >> 4) | (qh[l] >> 6 & 3) << 4) - 32);
    }
}

inline const std::vector<BlockFormat>& block_formats() {
  static const std::vector<BlockFormat> kFormats = {
      {Format::q4_0,
       {0},
       [](const uint8_t* b, double* y) {
         for (int j = 0; j < 32; ++j) y[j] = half_at(b) * (nibble_of(b + 2, j) - 8);
       }},
      {Format::q4_1,
       {0, 2},
       [](const uint8_t* b, double* y) {
         for (int j = 0; j < 32; ++j) y[j] = half_at(b) * nibble_of(b + 4, j) + half_at(b + 2);
       }},
      {Format::q5_0,
       {0},
       [](const uint8_t* b, double* y) {
         for (int j = 0; j < 32; ++j)
           y[j] = half_at(b) * (nibble_of(b + 6, j) + 16 * fifth_bit(b + 2, j) - 16);
       }},
      {Format::q5_1,
       {0, 2},
       [](const uint8_t* b, double* y) {
         for (int j = 0; j < 32; ++j)
           y[j] = half_at(b) * (nibble_of(b + 8, j) + 16 * fifth_bit(b + 4, j)) + half_at(b + 2);
       }},
      {Format::q8_0,
       {0},
       [](const uint8_t* b, double* y) {
         for (int j = 0; j < 32; ++j) y[j] = half_at(b) * static_cast<int8_t>(b[2 + j]);
       }},
      {Format::q2_k, {80, 82}, decode_q2_k},
      {Format::q3_k, {108}, decode_q3_k},
      {Format::q4_k, {0, 2}, [](const uint8_t* b, double* y) { decode_q4_q5_k(b, false, y); }},
      {Format::q5_k, {0, 2}, [](const uint8_t* b, double* y) { decode_q4_q5_k(b, true, y); }},
      {Format::q6_k, {208}, decode_q6_k},
  };
  return kFormats;
}

}  // namespace tenon::cpu
