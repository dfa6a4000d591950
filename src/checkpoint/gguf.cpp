#include "checkpoint/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "checkpoint/gguf_reader.h"
#include "checkpoint/layout.h"

namespace tenon::checkpoint {

static_assert(std::endian::native == std::endian::little, "GGUF and safetensors are read in place");

namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kDimsMax = 4;
constexpr size_t kKeyBytesMax = 65535;
// The least bytes an entry can take; a count that needs more than is left is refused up front.
constexpr uint64_t kValueEntryMin = 8 + 1 + 4 + 1;       // key length, key, type, value
constexpr uint64_t kTensorEntryMin = 8 + 1 + 4 + 4 + 8;  // name length, name, dims, type, offset

struct TensorType {
  uint32_t id;
  const char* name;
  std::optional<Format> format;  // nothing: known, not supported
};
const TensorType kTensorTypes[] = {
    {0, "F32", Format::f32},    {1, "F16", Format::f16},
    {2, "Q4_0", Format::q4_0},  {3, "Q4_1", Format::q4_1},
    {6, "Q5_0", Format::q5_0},  {7, "Q5_1", Format::q5_1},
    {8, "Q8_0", Format::q8_0},  {9, "Q8_1", {}},
    {10, "Q2_K", Format::q2_k}, {11, "Q3_K", Format::q3_k},
    {12, "Q4_K", Format::q4_k}, {13, "Q5_K", Format::q5_k},
    {14, "Q6_K", Format::q6_k}, {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},        {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},        {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},         {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},          {23, "IQ4_XS", {}},
    {24, "I8", Format::i8},     {25, "I16", Format::i16},
    {26, "I32", Format::i32},   {27, "I64", Format::i64},
    {28, "F64", Format::f64},   {29, "IQ1_M", {}},
    {30, "BF16", Format::bf16}, {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},          {39, "MXFP4", {}},
    {40, "NVFP4", {}},
};

uint64_t element_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string: return 8;  // its length field: the least it takes
    case GgufType::array: return 0;
  }
  return 0;
}

Result<GgufValue> read_bool(GgufReader& in, std::string_view key) {
  TENON_TRY(const uint8_t value, in.number<uint8_t>(key));
  if (value > 1) return corrupt("{}: {}: {} is not a boolean", in.source(), shown(key), value);
  return GgufValue(value == 1);
}

Result<GgufValue> read_array(GgufReader& in, std::string_view key) {
  TENON_TRY(const GgufType element, in.type(key));
  TENON_TRY(const uint64_t count, in.number<uint64_t>(key));
  if (element == GgufType::array)
    return unsupported("{}: {}: an array of arrays is not supported", in.source(), shown(key));
  const auto least = checked_mul(count, element_bytes(element));
  if (!least || *least > in.left())
    return corrupt("{}: {}: an array of {} {} does not fit the {} bytes left", in.source(),
                   shown(key), count, gguf_type_name(element), in.left());
  if (element != GgufType::string) {
    TENON_TRY(const auto bytes, in.take(*least, key));
    return GgufValue(GgufArray{element, count, bytes});
  }
  GgufReader walk = in;
  for (uint64_t i = 0; i < count; ++i) TENON_OK(walk.string(key));
  TENON_TRY(const auto bytes, in.take(walk.at() - in.at(), key));
  return GgufValue(GgufArray{element, count, bytes});
}

template <class Stored, class Kept>
Result<GgufValue> read_number(GgufReader& in, std::string_view key) {
  TENON_TRY(const Stored value, in.number<Stored>(key));
  return GgufValue(static_cast<Kept>(value));
}

Result<GgufValue> read_value(GgufReader& in, GgufType type, std::string_view key) {
  switch (type) {
    case GgufType::u8: return read_number<uint8_t, uint64_t>(in, key);
    case GgufType::i8: return read_number<int8_t, int64_t>(in, key);
    case GgufType::u16: return read_number<uint16_t, uint64_t>(in, key);
    case GgufType::i16: return read_number<int16_t, int64_t>(in, key);
    case GgufType::u32: return read_number<uint32_t, uint64_t>(in, key);
    case GgufType::i32: return read_number<int32_t, int64_t>(in, key);
    case GgufType::u64: return read_number<uint64_t, uint64_t>(in, key);
    case GgufType::i64: return read_number<int64_t, int64_t>(in, key);
    case GgufType::f32: return read_number<float, float>(in, key);
    case GgufType::f64: return read_number<double, double>(in, key);
    case GgufType::boolean: return read_bool(in, key);
    case GgufType::array: return read_array(in, key);
    case GgufType::string: break;
  }
  TENON_TRY(const auto text, in.string(key));
  return GgufValue(text);
}

Status read_metadata(GgufReader& in, uint64_t count, GgufFile& out) {
  for (uint64_t i = 0; i < count; ++i) {
    TENON_TRY(const auto key, in.string(fmt::format("metadata key {}", i)));
    if (key.empty()) return corrupt("{}: metadata key {} is empty", in.source(), i);
    if (key.size() > kKeyBytesMax)
      return corrupt("{}: metadata key {} is {} bytes long", in.source(), i, key.size());
    TENON_TRY(const GgufType type, in.type(key));
    TENON_TRY(const GgufValue value, read_value(in, type, key));
    if (!out.metadata.emplace(key, value).second)
      return corrupt("{}: metadata key {} is listed twice", in.source(), shown(key));
  }
  return {};
}

Result<Format> tensor_format(uint32_t id, std::string_view tensor, const std::string& source) {
  for (const TensorType& t : kTensorTypes) {
    if (t.id != id) continue;
    if (t.format) return *t.format;
    return unsupported("{}: tensor {}: type {} is not supported", source, shown(tensor), t.name);
  }
  return unsupported("{}: tensor {}: type {} is unknown", source, shown(tensor), id);
}

struct TensorEntry {
  WeightView view;  // without bytes
  uint64_t offset = 0;
};

Result<TensorEntry> read_tensor(GgufReader& in, uint64_t index) {
  TensorEntry out;
  TENON_TRY(const auto name, in.string(fmt::format("the name of tensor {}", index)));
  if (name.empty()) return corrupt("{}: tensor {} has an empty name", in.source(), index);
  out.view.name = name;
  TENON_TRY(const uint32_t dims, in.number<uint32_t>(name));
  if (dims > kDimsMax)
    return corrupt("{}: tensor {}: {} dimensions, at most {}", in.source(), shown(name), dims,
                   kDimsMax);
  for (uint32_t d = 0; d < dims; ++d) {
    TENON_TRY(const uint64_t dim, in.number<uint64_t>(name));
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return corrupt("{}: tensor {}: the size of dimension {} overflows", in.source(), shown(name),
                     dim);
    out.view.shape.push_back(static_cast<int64_t>(dim));
  }
  std::reverse(out.view.shape.begin(), out.view.shape.end());  // the file lists the innermost first
  TENON_TRY(const uint32_t type, in.number<uint32_t>(name));
  TENON_TRY(out.view.format, tensor_format(type, name, in.source()));
  TENON_TRY(out.offset, in.number<uint64_t>(name));
  return out;
}

Status place_tensor(TensorEntry& entry, std::span<const std::byte> data, const GgufFile& file) {
  const WeightView& view = entry.view;
  TENON_TRY(const uint64_t size, stored_bytes(view.shape, view.format, file.source, view.name));
  if (entry.offset % file.alignment != 0)
    return corrupt("{}: tensor {}: offset {} is not a multiple of {}", file.source,
                   shown(view.name), entry.offset, file.alignment);
  if (entry.offset > data.size() || size > data.size() - entry.offset)
    return corrupt("{}: tensor {}: shape {} of {} takes {} bytes at offset {}, the file has {}",
                   file.source, shown(view.name), shape_text(view.shape), format_name(view.format),
                   size, entry.offset, data.size());
  entry.view.bytes = data.subspan(entry.offset, size);
  return {};
}

Status read_tensors(GgufReader& in, uint64_t count, std::span<const std::byte> file,
                    GgufFile& out) {
  std::vector<TensorEntry> entries;
  // Not reserved: a false count that fits a large file would still ask for five times that file.
  for (uint64_t i = 0; i < count; ++i) {
    TENON_TRY(TensorEntry entry, read_tensor(in, i));
    entries.push_back(std::move(entry));
  }
  const uint64_t pad = (out.alignment - in.at() % out.alignment) % out.alignment;
  const auto data = pad <= in.left() ? file.subspan(in.at() + pad) : std::span<const std::byte>();
  out.tensors.reserve(entries.size());
  for (TensorEntry& entry : entries) {
    TENON_OK(place_tensor(entry, data, out));
    entry.view.keep = out.keep;
    out.tensors.push_back(std::move(entry.view));
  }
  return check_distinct(out.tensors, out.source);
}

Status read_version(GgufReader& in, GgufFile& out) {
  TENON_TRY(const uint32_t magic, in.number<uint32_t>("the magic number"));
  if (magic != kMagic) return corrupt("{}: not a GGUF file", in.source());
  TENON_TRY(out.version, in.number<uint32_t>("the version"));
  if (out.version != 0 && (out.version & 0xffff) == 0)
    return unsupported("{}: big-endian GGUF is not supported", in.source());
  if (out.version != 2 && out.version != 3)
    return unsupported("{}: GGUF version {} is not supported, only 2 and 3", in.source(),
                       out.version);
  return {};
}

Status check_count(const GgufReader& in, uint64_t count, uint64_t entry_bytes, const char* what) {
  const auto least = checked_mul(count, entry_bytes);
  if (least && *least <= in.left()) return {};
  return corrupt("{}: {} {} do not fit the {} bytes left", in.source(), count, what, in.left());
}

}  // namespace

const char* gguf_type_name(GgufType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

Result<GgufFile> parse_gguf(std::span<const std::byte> file, std::shared_ptr<const void> keep,
                            const std::string& source) {
  GgufFile out;
  out.source = source;
  out.keep = std::move(keep);
  GgufReader in(file, source);
  TENON_OK(read_version(in, out));
  TENON_TRY(const uint64_t tensors, in.number<uint64_t>("the tensor count"));
  TENON_TRY(const uint64_t values, in.number<uint64_t>("the metadata count"));
  TENON_OK(check_count(in, values, kValueEntryMin, "metadata values"));
  TENON_OK(read_metadata(in, values, out));
  constexpr int64_t kAlignmentMax = 1 << 24;
  TENON_TRY(const auto alignment, gguf_int(out, "general.alignment", 1, kAlignmentMax));
  out.alignment = static_cast<uint64_t>(alignment.value_or(32));
  if (!std::has_single_bit(out.alignment))
    return corrupt("{}: general.alignment {} is not a power of two", source, out.alignment);
  TENON_OK(check_count(in, tensors, kTensorEntryMin, "tensors"));
  TENON_OK(read_tensors(in, tensors, file, out));
  return out;
}

}  // namespace tenon::checkpoint
