#include "checkpoint/safetensors_writer.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

namespace tenon::checkpoint {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

std::string header_of(std::span<const TensorHeader> tensors,
                      const std::map<std::string, std::string>& metadata) {
  // Entry by entry: an ordered JSON object would compare each name with all before it.
  std::string text = "{";
  const auto add = [&](const std::string& name, const Json& value) {
    text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", dump_json(name), dump_json(value));
  };
  if (!metadata.empty()) add("__metadata__", metadata);
  uint64_t offset = 0;
  for (const TensorHeader& tensor : tensors) {
    const uint64_t end = offset + tensor.bytes();
    add(tensor.name, {{"dtype", safetensors_dtype(tensor.format)},
                      {"shape", tensor.shape},
                      {"data_offsets", {offset, end}}});
    offset = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

uint64_t TensorHeader::bytes() const {
  uint64_t count = static_cast<uint64_t>(format_block(format).bytes);
  for (int64_t dim : shape) count *= static_cast<uint64_t>(dim);
  return count;
}

Result<SafetensorsWriter> SafetensorsWriter::create(
    const std::string& path, std::span<const TensorHeader> tensors,
    const std::map<std::string, std::string>& metadata) {
  std::FILE* file = std::fopen((path + ".part").c_str(), "wb");
  if (!file) return unavailable("cannot write {}: {}", path, std::strerror(errno));
  SafetensorsWriter writer(path, file);
  const std::string header = header_of(tensors, metadata);
  const uint64_t header_len = header.size();
  TENON_OK(writer.write(&header_len, sizeof header_len));
  TENON_OK(writer.write(header.data(), header.size()));
  for (const TensorHeader& tensor : tensors) writer.due_.push_back(tensor.bytes());
  std::reverse(writer.due_.begin(), writer.due_.end());
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  file_.reset();
  std::remove(unfinished().c_str());
}

Error SafetensorsWriter::failed() const {
  return unavailable("cannot write {}: {}", path_, std::strerror(errno));
}

Status SafetensorsWriter::write(const void* data, size_t size) {
  if (size > 0 && std::fwrite(data, 1, size, file_.get()) != size) return failed();
  return {};
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  CHECK(!due_.empty() && due_.back() == bytes.size(), "{}: {} bytes are not the next tensor's",
        path_, bytes.size());
  due_.pop_back();
  return write(bytes.data(), bytes.size());
}

Status SafetensorsWriter::finish() {
  CHECK(due_.empty(), "{}: {} tensors were not written", path_, due_.size());
  if (std::fflush(file_.get()) != 0) return failed();
  if (std::rename(unfinished().c_str(), path_.c_str()) != 0) return failed();
  file_.reset();
  return {};
}

Status write_safetensors(const std::string& path, std::span<const WeightView> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<TensorHeader> headers;
  for (const WeightView& view : tensors) headers.push_back({view.name, view.format, view.shape});
  TENON_TRY(SafetensorsWriter writer, SafetensorsWriter::create(path, headers, metadata));
  for (const WeightView& view : tensors) TENON_OK(writer.append(view.bytes));
  return writer.finish();
}

}  // namespace tenon::checkpoint
