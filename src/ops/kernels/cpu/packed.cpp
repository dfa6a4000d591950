#include "ops/kernels/cpu/packed.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ops/kernels/cpu/half.h"

namespace tenon::cpu {

namespace {

constexpr int kWordBits = 32;
// Source bytes that one packing job reads before it gives their pages back.
constexpr size_t kChunkBytes = size_t{1} << 20;

// Codes [0, group) of one output into its words of a plane; `shift` drops lower planes' bits.
void pack_plane(const uint8_t* codes, int group, int bits, int shift, std::byte* lines, int lane) {
  const int word_codes = kWordBits / bits;
  const uint32_t mask = (1u << bits) - 1;
  for (int k = 0; k < group; k += word_codes, lines += kLineBytes) {
    uint32_t word = 0;
    for (int i = 0; i < word_codes; ++i)
      word |= (codes[k + i] >> shift & mask) << (bits * (i / 2) + 16 * (i % 2));
    std::memcpy(lines + lane * sizeof(word), &word, sizeof(word));
  }
}

void unpack_plane(const std::byte* lines, int group, int bits, int shift, int lane,
                  uint8_t* codes) {
  const int word_codes = kWordBits / bits;
  const uint32_t mask = (1u << bits) - 1;
  for (int k = 0; k < group; k += word_codes, lines += kLineBytes) {
    uint32_t word;
    std::memcpy(&word, lines + lane * sizeof(word), sizeof(word));
    for (int i = 0; i < word_codes; ++i)
      codes[k + i] |=
          static_cast<uint8_t>((word >> (bits * (i / 2) + 16 * (i % 2)) & mask) << shift);
  }
}

size_t plane_bytes(int group, int bits) {
  return static_cast<size_t>(group) * bits / 8 * kTileOutputs;
}

void store_scale(ScaleType type, float value, int8_t code, std::byte* at, int lane) {
  switch (type) {
    case ScaleType::f32: std::memcpy(at + lane * 4, &value, 4); return;
    case ScaleType::f16: store_f16(value, at + lane * 2); return;
    case ScaleType::bf16: store_bf16(value, at + lane * 2); return;
    case ScaleType::two_level: std::memcpy(at + lane, &code, 1); return;
    case ScaleType::none: return;
  }
}

float load_scale(ScaleType type, const std::byte* at, int lane) {
  float value = 1;
  switch (type) {
    case ScaleType::f32: std::memcpy(&value, at + lane * 4, 4); return value;
    case ScaleType::f16: return load_f16(at + lane * 2);
    case ScaleType::bf16: return load_bf16(at + lane * 2);
    case ScaleType::two_level: return static_cast<float>(static_cast<int8_t>(at[lane]));
    case ScaleType::none: return value;
  }
  return value;
}

// Gives whole pages of a mapped file back; the data can always be read again.
void release(const WeightView& view, size_t begin, size_t end) {
  if (!view.from_file || begin >= end) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto base = reinterpret_cast<uintptr_t>(view.bytes.data());
  const uintptr_t first = (base + begin + page - 1) / page * page;
  const uintptr_t last = (base + end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void pack_tile(const GroupReader& reader, PackedMatrix& m, int tile) {
  const Packing& p = m.packing;
  std::byte* at = m.tile(tile);
  const int row_end = std::min(kTileOutputs, m.out - tile * kTileOutputs);
  const int num_groups = (m.in + p.group - 1) / p.group;
  std::memset(at, 0, m.tile_bytes);  // outputs past the last stay zero
  for (int g = 0; g < num_groups; ++g) {
    const bool new_super = p.super_bytes() > 0 && g * p.group % kSuperBlock == 0;
    std::byte* codes = at + (new_super ? p.super_bytes() : 0);
    const int len = std::min(p.group, m.in - g * p.group);
    for (int lane = 0; lane < row_end; ++lane) {
      StoredGroup s;
      reader.read(int64_t{tile} * kTileOutputs + lane, g, s);
      if (new_super) {
        store_f16(s.super_scale, at + lane * 2);
        if (p.has_min) store_f16(s.super_min, at + 32 + lane * 2);
      }
      std::byte* scales = codes;
      if (p.is_integer()) {
        pack_plane(s.codes, p.group, p.plane_bits(), 0, codes, lane);
        scales += plane_bytes(p.group, p.plane_bits());
        if (p.rest_bits() > 0)
          pack_plane(s.codes, p.group, p.rest_bits(), p.plane_bits(), scales, lane);
        scales += plane_bytes(p.group, p.rest_bits());
      } else {
        const size_t width = p.bits / 8;
        for (int k = 0; k < len; ++k)
          std::memcpy(codes + (k * kTileOutputs + lane) * width, s.codes + k * width, width);
        scales += len * kTileOutputs * width;
      }
      store_scale(p.scale, s.scale, s.scale_code, scales, lane);
      if (p.has_min) store_scale(p.scale, s.min, s.min_code, scales + p.scale_bytes(), lane);
    }
    at = codes + p.group_bytes();
  }
}

}  // namespace

size_t Packing::scale_bytes() const {
  switch (scale) {
    case ScaleType::none: return 0;
    case ScaleType::f32: return 4 * kTileOutputs;
    case ScaleType::f16:
    case ScaleType::bf16: return 2 * kTileOutputs;
    case ScaleType::two_level: return kTileOutputs;
  }
  return 0;
}

size_t Packing::group_bytes() const {
  return plane_bytes(group, bits) + scale_bytes() * (has_min ? 2 : 1);
}

size_t Packing::super_bytes() const {
  return scale != ScaleType::two_level ? 0 : 2 * kTileOutputs * (has_min ? 2 : 1);
}

size_t Packing::tile_bytes(int in) const {
  const size_t supers = (static_cast<size_t>(in) + kSuperBlock - 1) / kSuperBlock;
  const size_t groups = (static_cast<size_t>(in) + group - 1) / group;
  const size_t scales = groups * scale_bytes() * (has_min ? 2 : 1);
  return static_cast<size_t>(in) * bits / 8 * kTileOutputs + scales + supers * super_bytes();
}

void PackedMatrix::Free::operator()(std::byte* p) const { std::free(p); }

PackedMatrix::PackedMatrix(const Packing& packing_, int out_, int in_)
    : packing(packing_), out(out_), in(in_), tile_bytes(packing_.tile_bytes(in_)) {
  const size_t size = (num_tiles() * tile_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kLineBytes, std::max<size_t>(size, 64))));
  if (data_ == nullptr) throw std::bad_alloc();
}

void PackedMatrix::visit_row(
    int row, const std::function<void(const StoredGroup&, int, int, int)>& visit) const {
  const Packing& p = packing;
  const int lane = row % kTileOutputs;
  const std::byte* at = tile(row / kTileOutputs);
  float super_scale = 1, super_min = 1;
  for (int g = 0, k0 = 0; k0 < in; ++g, k0 += p.group) {
    if (p.super_bytes() > 0 && k0 % kSuperBlock == 0) {
      super_scale = load_f16(at + lane * 2);
      if (p.has_min) super_min = load_f16(at + 32 + lane * 2);
      at += p.super_bytes();
    }
    const int len = std::min(p.group, in - k0);
    const std::byte* scales = at + plane_bytes(len, p.bits);
    StoredGroup s;
    std::memset(s.codes, 0, sizeof(s.codes));
    s.scale = super_scale * load_scale(p.scale, scales, lane);
    if (p.has_min) s.min = super_min * load_scale(p.scale, scales + p.scale_bytes(), lane);
    if (p.is_integer()) {
      unpack_plane(at, len, p.plane_bits(), 0, lane, s.codes);
      if (p.rest_bits() > 0)
        unpack_plane(at + plane_bytes(len, p.plane_bits()), len, p.rest_bits(), p.plane_bits(),
                     lane, s.codes);
    } else {
      const size_t width = p.bits / 8;
      for (int k = 0; k < len; ++k)
        std::memcpy(s.codes + k * width, at + (k * kTileOutputs + lane) * width, width);
    }
    visit(s, g, k0, len);
    at = scales + p.scale_bytes() * (p.has_min ? 2 : 1);
  }
}

void PackedMatrix::unpack_row(int row, float* values) const {
  const Packing& p = packing;
  visit_row(row, [&](const StoredGroup& s, int, int k0, int len) {
    const auto* bytes = reinterpret_cast<const std::byte*>(s.codes);
    for (int k = 0; k < len; ++k)
      values[k0 + k] = p.is_integer()
                           ? std::fma(s.scale, static_cast<float>(code_value(p, s.codes[k])), s.min)
                           : s.scale * load_code(p.code, bytes + k * (p.bits / 8));
  });
}

std::shared_ptr<PackedMatrix> pack_groups(const GroupReader& reader, const ParallelFor& run) {
  auto m = std::make_shared<PackedMatrix>(reader.packing, static_cast<int>(reader.out),
                                          static_cast<int>(reader.in));
  const int tiles_per_job =
      static_cast<int>(std::max<size_t>(kChunkBytes / std::max<size_t>(m->tile_bytes, 1), 1));
  const int num_jobs = (m->num_tiles() + tiles_per_job - 1) / tiles_per_job;
  run(num_jobs, [&](int job) {
    const int begin = job * tiles_per_job;
    const int end = std::min(begin + tiles_per_job, m->num_tiles());
    for (int tile = begin; tile < end; ++tile) pack_tile(reader, *m, tile);
    if (reader.done)
      reader.done(int64_t{begin} * kTileOutputs, std::min(int64_t{end} * kTileOutputs, reader.out));
  });
  return m;
}

Result<std::shared_ptr<const PackedMatrix>> pack(const LinearSource& source,
                                                 const ParallelFor& run) {
  TENON_TRY(GroupReader reader, group_reader(source));
  const WeightView& view = source.weight;
  const size_t row_bytes = view.bytes.size() / std::max<size_t>(reader.out, 1);
  reader.done = [&](int64_t row, int64_t end) { release(view, row * row_bytes, end * row_bytes); };
  auto m = pack_groups(reader, run);
  if (!source.bias.empty()) {
    TENON_TRY(m->bias, read_floats(source.bias[0]));
  }
  return std::shared_ptr<const PackedMatrix>(std::move(m));
}

}  // namespace tenon::cpu
