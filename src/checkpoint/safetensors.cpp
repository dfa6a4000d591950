#include "checkpoint/safetensors.h"

#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/layout.h"

namespace tenon::checkpoint {

namespace {

struct Dtype {
  std::string_view name;
  Format format;
};
constexpr Dtype kDtypes[] = {
    {"F32", Format::f32},      {"F16", Format::f16}, {"BF16", Format::bf16}, {"F64", Format::f64},
    {"U8", Format::u8},        {"I8", Format::i8},   {"U16", Format::u16},   {"I16", Format::i16},
    {"U32", Format::u32},      {"I32", Format::i32}, {"U64", Format::u64},   {"I64", Format::i64},
    {"BOOL", Format::boolean},
};

// What one tensor's entry says, before any of it is believed.
struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, offsets;
};

// Turns an entry into a view of `data`, or says what is wrong with it.
Result<WeightView> make_view(Entry entry, std::span<const std::byte> data,
                             const std::shared_ptr<const void>& keep, const std::string& source) {
  const std::string name = shown(entry.name);
  if (entry.name.empty()) return corrupt("{}: a tensor has an empty name", source);
  if (!entry.dtype || !entry.shape || !entry.offsets || entry.offsets->size() != 2)
    return corrupt("{}: tensor {}: needs dtype, shape and data_offsets of two numbers", source,
                   name);
  const Dtype* dtype = nullptr;
  for (const Dtype& d : kDtypes)
    if (d.name == *entry.dtype) dtype = &d;
  if (!dtype)
    return unsupported("{}: tensor {}: dtype {} is not supported", source, name,
                       shown(*entry.dtype));

  WeightView view;
  for (uint64_t dim : *entry.shape) {
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return corrupt("{}: tensor {}: the size of dimension {} overflows", source, name, dim);
    view.shape.push_back(static_cast<int64_t>(dim));
  }
  TENON_TRY(const uint64_t want, stored_bytes(view.shape, dtype->format, source, entry.name));
  const uint64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
  if (begin > end || end > data.size())
    return corrupt("{}: tensor {}: bytes {} to {} are not inside the {} bytes of data", source,
                   name, begin, end, data.size());
  if (end - begin != want)
    return corrupt("{}: tensor {}: {} bytes stored, but shape {} of {} takes {}", source, name,
                   end - begin, shape_text(view.shape), dtype->name, want);
  view.bytes = data.subspan(begin, want);
  view.format = dtype->format;
  view.keep = keep;
  view.name = std::move(entry.name);
  return view;
}

// Reads the header as events, because its grammar is three levels deep and fixed: nothing nested
// can grow, a key listed twice is seen, and time stays linear in the header (a JSON tree with
// ordered objects would search 100 MB of keys for each new one).
class HeaderSax final : public nlohmann::json_sax<Json> {
 public:
  HeaderSax(std::span<const std::byte> data, const std::shared_ptr<const void>& keep,
            const std::string& source)
      : data_(data), keep_(keep), source_(source) {}

  std::vector<WeightView> views;
  std::optional<Error> error;

  bool start_object(std::size_t) override {
    if (depth_ > 1) return unexpected();
    ++depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) return start_entry(key);
    if (in_metadata_) return metadata_keys_.insert(key).second || twice("__metadata__." + key);
    field_ = key == "dtype"          ? Field::dtype
             : key == "shape"        ? Field::shape
             : key == "data_offsets" ? Field::offsets
                                     : Field::none;
    if (field_ == Field::none) return unexpected();
    const bool seen = field_ == Field::dtype   ? entry_.dtype.has_value()
                      : field_ == Field::shape ? entry_.shape.has_value()
                                               : entry_.offsets.has_value();
    return !seen || twice(entry_.name + "." + key);
  }
  bool string(string_t& value) override {
    if (depth_ != 2) return unexpected();
    if (in_metadata_) return true;
    if (field_ != Field::dtype) return unexpected();
    entry_.dtype = std::move(value);
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || field_ == Field::dtype) return unexpected();
    ++depth_;
    numbers().emplace();
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr size_t kRankMax = 64;
    if (depth_ != 3 || numbers()->size() >= kRankMax) return unexpected();
    numbers()->push_back(value);
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool end_object() override {
    if (--depth_ != 1) return true;
    if (in_metadata_) return true;
    auto view = make_view(std::move(entry_), data_, keep_, source_);
    if (!view.ok()) return fail(std::move(view).error());
    views.push_back(std::move(view).value());
    return true;
  }
  bool null() override { return unexpected(); }
  bool boolean(bool) override { return unexpected(); }
  bool number_integer(number_integer_t) override { return unexpected(); }  // negative
  bool number_float(number_float_t, const string_t&) override { return unexpected(); }
  bool binary(binary_t&) override { return unexpected(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail(corrupt("{}: the header is not valid JSON at byte {}", source_, position));
  }

 private:
  enum class Field { none, dtype, shape, offsets };

  bool start_entry(string_t& name) {
    in_metadata_ = name == "__metadata__";
    if (in_metadata_ && std::exchange(metadata_seen_, true)) return twice(name);
    entry_ = Entry();
    entry_.name = std::move(name);
    field_ = Field::none;
    return true;
  }
  std::optional<std::vector<uint64_t>>& numbers() {
    return field_ == Field::shape ? entry_.shape : entry_.offsets;
  }
  bool fail(Error e) {
    if (!error) error = std::move(e);
    return false;
  }
  bool twice(const std::string& key) {
    return fail(corrupt("{}: the header lists {} twice", source_, shown(key)));
  }
  bool unexpected() {
    if (depth_ == 0) return fail(corrupt("{}: the header is not a JSON object", source_));
    return fail(corrupt("{}: malformed header entry {}", source_, shown(entry_.name)));
  }

  std::span<const std::byte> data_;
  const std::shared_ptr<const void>& keep_;
  const std::string& source_;
  Entry entry_;
  Field field_ = Field::none;
  int depth_ = 0;
  bool in_metadata_ = false, metadata_seen_ = false;
  std::set<std::string> metadata_keys_;
};

}  // namespace

std::string_view safetensors_dtype(Format format) {
  for (const Dtype& d : kDtypes)
    if (d.format == format) return d.name;
  CHECK(false, "format {} has no dtype in this container", format_name(format));
}

Result<std::vector<WeightView>> parse_safetensors(std::span<const std::byte> file,
                                                  std::shared_ptr<const void> keep,
                                                  const std::string& source) {
  uint64_t header_len = 0;
  if (file.size() < sizeof header_len)
    return corrupt("{}: {} bytes are too short for a safetensors file", source, file.size());
  std::memcpy(&header_len, file.data(), sizeof header_len);
  const std::span<const std::byte> rest = file.subspan(sizeof header_len);
  if (header_len < 2 || header_len > kSafetensorsHeaderMax)
    return corrupt("{}: header length {} is not between 2 and {}", source, header_len,
                   kSafetensorsHeaderMax);
  if (header_len > rest.size())
    return corrupt("{}: the header of {} bytes is cut: only {} follow", source, header_len,
                   rest.size());

  HeaderSax sax(rest.subspan(header_len), keep, source);
  const char* header = reinterpret_cast<const char*>(rest.data());
  const bool good = Json::sax_parse(header, header + header_len, &sax);
  if (sax.error) return std::move(*sax.error);
  if (!good) return corrupt("{}: the header is not valid JSON", source);
  // Holes between tensors are accepted, although the reference implementation refuses them: writers
  // that align tensors leave some, and bytes no view covers are never read. Overlaps are refused.
  TENON_OK(check_distinct(sax.views, source));
  return std::move(sax.views);
}

}  // namespace tenon::checkpoint
