// MLX's quantized matrices, group by group. A row is one stream of codes, lowest bits first, in
// 32-bit words; scales (and affine biases) are one a group.
// Layouts: mlx/ops.h (quantize). mxfp4 and mxfp8 are those of the OCP Microscaling specification;
// nvfp4 has e4m3 scales. A scale over the whole tensor (nvfp4) is not read.
#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/half.h"
#include "ops/kernels/cpu/sources.h"

namespace tenon::cpu {

namespace {

using ReadCodes = void (*)(const std::byte* at, int count, uint8_t* codes);

// Eight codes take kBits bytes.
template <int kBits>
void read_codes(const std::byte* at, int count, uint8_t* codes) {
  for (int k = 0; k < count; k += 8, at += kBits) {
    uint64_t stream = 0;
    std::memcpy(&stream, at, kBits);
    for (int i = 0; i < 8; ++i)
      codes[k + i] = static_cast<uint8_t>(stream >> (kBits * i) & ((1 << kBits) - 1));
  }
}

ReadCodes code_reader(int bits) {
  switch (bits) {
    case 2: return read_codes<2>;
    case 3: return read_codes<3>;
    case 4: return read_codes<4>;
    case 5: return read_codes<5>;
    case 6: return read_codes<6>;
    case 8: return read_codes<8>;
    default: return nullptr;
  }
}

// 2^(code - 127), or half of it: bfloat16s down to 2^-128. 255 is NaN.
float e8m0(uint8_t code, bool halved) {
  return code == 255 ? NAN : std::ldexp(1.0f, code - (halved ? 128 : 127));
}

// The scale of a group whose codes are read. fp4 codes are doubled, so their scales are halved.
float scale_of(QuantMode mode, uint8_t code, const StoredGroup& s, int group) {
  if (mode == QuantMode::nvfp4) return e4m3_to_f32(code) * 0.5f;
  if (mode == QuantMode::mxfp4) return e8m0(code, true);
  // Kernels take e4m3's NaN for 480; through the scale it reaches every product all the same.
  for (int k = 0; k < group; ++k)
    if ((s.codes[k] & 0x7F) == 0x7F) return NAN;
  return e8m0(code, false);
}

Result<Packing> mlx_packing(const LinearSource& source) {
  const int bits = source.bits, group = source.group_size;
  const auto is = [&](int want_bits, int want_group) {
    return bits == want_bits && group == want_group;
  };
  if (source.mode == QuantMode::mxfp4 && is(4, 32))
    return Packing{CodeType::fp4, 4, 32, 0, ScaleType::bf16, false};
  if (source.mode == QuantMode::nvfp4 && is(4, 16))
    return Packing{CodeType::fp4, 4, 16, 0, ScaleType::f16, false};
  if (source.mode == QuantMode::mxfp8 && is(8, 32))
    return Packing{CodeType::fp8, 8, 32, 0, ScaleType::bf16, false};
  if (source.mode == QuantMode::affine && code_reader(bits) != nullptr &&
      (group == 32 || group == 64 || group == 128)) {
    const Format scales = source.scales.empty() ? Format::f32 : source.scales[0].format;
    const DenseFormat* format = dense_format(scales);
    if (format == nullptr) return no_reader(source.scales[0]);
    return Packing{CodeType::integer, bits, group, 0, format->scale, true};
  }
  return unsupported("tensor {}: the CPU kernels do not read {} codes of {} bits in groups of {}",
                     source.weight.name, quant_mode_name(source.mode), bits, group);
}

Status check_triple(const LinearSource& source, const Packing& packing, int64_t in) {
  const WeightView& weight = source.weight;
  if (weight.format != Format::u32) return no_reader(weight);
  if (in < 1 || in % packing.group != 0 || in * packing.bits != weight.shape[1] * 32)
    return corrupt("tensor {}: rows of {} words are not whole groups of {} codes of {} bits",
                   weight.name, weight.shape[1], packing.group, packing.bits);
  const bool affine = source.mode == QuantMode::affine;
  if (source.scales.size() != 1 || source.biases.size() != (affine ? 1 : 0))
    return corrupt("tensor {}: {} codes need scales and {}", weight.name,
                   quant_mode_name(source.mode), affine ? "biases" : "no biases");
  for (const auto* part : {&source.scales, &source.biases})
    for (const WeightView& view : *part) {
      const Format want = affine ? source.scales[0].format : Format::u8;
      if (view.format != want) return no_reader(view);
      TENON_OK(check_matrix(view, weight.shape[0], in / packing.group));
    }
  return {};
}

}  // namespace

Result<GroupReader> mlx_reader(const LinearSource& source) {
  GroupReader reader;
  TENON_TRY(const Packing packing, mlx_packing(source));
  reader.packing = packing;
  reader.in = source.weight.shape[1] * 32 / packing.bits;
  TENON_OK(check_triple(source, packing, reader.in));
  const int64_t num_groups = reader.in / packing.group;
  const int64_t group_bytes = packing.group * packing.bits / 8;
  const auto codes = [weight = source.weight, read = code_reader(packing.bits), packing,
                      group_bytes](int64_t at, StoredGroup& s) {
    read(weight.bytes.data() + at * group_bytes, packing.group, s.codes);
  };
  const WeightView scales = source.scales[0];
  if (source.mode != QuantMode::affine) {
    reader.read = [=, mode = source.mode](int64_t row, int64_t group, StoredGroup& s) {
      const int64_t at = row * num_groups + group;
      codes(at, s);
      s.scale = scale_of(mode, static_cast<uint8_t>(scales.bytes[at]), s, packing.group);
    };
    return reader;
  }
  const DenseFormat format = *dense_format(scales.format);
  reader.read = [=, biases = source.biases[0]](int64_t row, int64_t group, StoredGroup& s) {
    const int64_t at = row * num_groups + group;
    codes(at, s);
    s.scale = load_code(format.code, scales.bytes.data() + at * format.bytes);
    s.min = load_code(format.code, biases.bytes.data() + at * format.bytes);
  };
  return reader;
}

}  // namespace tenon::cpu
