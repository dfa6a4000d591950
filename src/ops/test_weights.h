// Random matrices in stored form, for tests of the kernel families.
#pragma once
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace tenon::ops {

inline mx::array random_array(mx::Shape shape, int seed, float scale = 1) {
  mx::array x = mx::random::normal(shape, mx::float32, 0, scale, mx::random::key(seed));
  mx::eval(x);
  return x;
}

// The array's bytes as a checkpoint would hand them out.
inline WeightView view_of(const mx::array& array, std::string name) {
  mx::array x = mx::contiguous(array);
  mx::eval(x);
  auto bytes = std::make_shared<std::vector<std::byte>>(x.nbytes());
  std::memcpy(bytes->data(), x.data<void>(), x.nbytes());
  const Format format = x.dtype() == mx::uint32    ? Format::u32
                        : x.dtype() == mx::uint8   ? Format::u8
                        : x.dtype() == mx::float16 ? Format::f16
                                                   : Format::f32;
  return {*bytes, {x.shape().begin(), x.shape().end()}, format, bytes, std::move(name)};
}

// How a test stores a matrix.
struct Storage {
  const char* name;
  int bits;  // 0: float32
  int group_size;
  QuantMode mode;
};
constexpr Storage kStorages[] = {{"f32", 0, 0, QuantMode::affine},
                                 {"affine4", 4, 64, QuantMode::affine},
                                 {"affine8", 8, 32, QuantMode::affine},
                                 {"mxfp4", 4, 32, QuantMode::mxfp4},
                                 {"mxfp8", 8, 32, QuantMode::mxfp8}};

inline LinearSource random_linear(int out, int in, const Storage& storage, int seed,
                                  bool bias = false) {
  const mx::array w = random_array({out, in}, seed, 1 / std::sqrt(static_cast<float>(in)));
  LinearSource source;
  if (storage.bits == 0) {
    source.weight = view_of(w, "w");
  } else {
    const auto parts =
        mx::quantize(w, storage.group_size, storage.bits, quant_mode_name(storage.mode));
    source.weight = view_of(parts[0], "w");
    source.scales = {view_of(parts[1], "scales")};
    if (parts.size() > 2) source.biases = {view_of(parts[2], "biases")};
    source.bits = storage.bits;
    source.group_size = storage.group_size;
    source.mode = storage.mode;
  }
  if (bias) source.bias = {view_of(random_array({out}, seed + 1), "bias")};
  return source;
}

inline std::vector<LinearSource> random_experts(int num, int out, int in, const Storage& storage,
                                                int seed) {
  std::vector<LinearSource> experts;
  for (int i = 0; i < num; ++i) experts.push_back(random_linear(out, in, storage, seed + 7 * i));
  return experts;
}

inline Norm random_norm(int n, int seed) {
  return {mx::add(mx::array(1.0f), random_array({n}, seed, 0.2f)), 1e-5f, false, {}};
}

inline mx::array rows_of(const mx::array& x, int from, int to) {
  mx::Shape begin(x.ndim(), 0), end = x.shape();
  begin[0] = from;
  end[0] = to;
  return mx::contiguous(mx::slice(x, begin, end));
}

// Compared by MLX itself: its buffers move between its threads, and only it knows the order.
inline bool same_bits(const mx::array& a, const mx::array& b) {
  if (a.shape() != b.shape()) return false;
  const auto bits = [](const mx::array& x) { return mx::view(mx::contiguous(x), mx::uint32); };
  return mx::all(mx::equal(bits(a), bits(b))).item<bool>();
}

// The largest difference over the largest value.
inline float difference(const mx::array& a, const mx::array& b) {
  return mx::divide(mx::max(mx::abs(mx::subtract(a, b))), mx::max(mx::abs(b))).item<float>();
}

}  // namespace tenon::ops
