// The bounded cursor behind parse_gguf: every read is checked against the bytes that are left.
// Thread: one. Owns nothing: `file` and `source` outlive it. Little-endian, unaligned.
// Errors: corrupt (cut), unsupported (value type), naming `source` and what was being read.
#pragma once
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/gguf.h"
#include "checkpoint/layout.h"

namespace tenon::checkpoint {

// A cursor that cannot leave the file. `what` names the thing being read, for the message.
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> file, const std::string& source)
      : file_(file), source_(source) {}

  size_t left() const { return file_.size() - at_; }
  size_t at() const { return at_; }
  const std::string& source() const { return source_; }

  template <class T>
  Result<T> number(std::string_view what) {
    TENON_TRY(const auto bytes, take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  Result<std::span<const std::byte>> take(uint64_t size, std::string_view what) {
    if (size > left())
      return corrupt("{}: cut in {}: {} bytes needed at byte {}, {} left", source_, shown(what),
                     size, at_, left());
    const auto bytes = file_.subspan(at_, size);
    at_ += size;
    return bytes;
  }
  Result<std::string_view> string(std::string_view what) {
    TENON_TRY(const uint64_t size, number<uint64_t>(what));
    TENON_TRY(const auto bytes, take(size, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  Result<GgufType> type(std::string_view what) {
    TENON_TRY(const uint32_t id, number<uint32_t>(what));
    if (id > static_cast<uint32_t>(GgufType::f64))
      return unsupported("{}: {}: value type {} is unknown", source_, shown(what), id);
    return static_cast<GgufType>(id);
  }

 private:
  std::span<const std::byte> file_;
  size_t at_ = 0;
  const std::string& source_;
};

}  // namespace tenon::checkpoint
