#include "cli/safetensors_writer.h"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/json.h"

namespace tenon::cli {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

std::span<const std::byte> bytes_of(const OutTensor& tensor) {
  return std::visit([](auto span) { return std::as_bytes(span); }, tensor.data);
}

std::string header_of(const std::vector<OutTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const OutTensor& tensor : tensors) {
    size_t end = offset + bytes_of(tensor).size();
    header[tensor.name] = {{"dtype", tensor.data.index() == 0 ? "F32" : "I32"},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

bool write_bytes(std::FILE* file, const void* data, size_t size) {
  return size == 0 || std::fwrite(data, 1, size, file) == size;
}

}  // namespace

Status write_safetensors(const std::string& path, const std::vector<OutTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::string unfinished = path + ".part";
  std::FILE* file = std::fopen(unfinished.c_str(), "wb");
  if (!file) return unavailable("cannot write {}: {}", path, std::strerror(errno));
  std::string header = header_of(tensors, metadata);
  uint64_t header_len = header.size();
  bool good = write_bytes(file, &header_len, sizeof header_len) &&
              write_bytes(file, header.data(), header.size());
  for (const OutTensor& tensor : tensors) {
    std::span<const std::byte> bytes = bytes_of(tensor);
    good = good && write_bytes(file, bytes.data(), bytes.size());
  }
  good = (std::fclose(file) == 0) && good;
  if (good && std::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  Error error = unavailable("cannot write {}: {}", path, std::strerror(errno));
  std::remove(unfinished.c_str());
  return error;
}

}  // namespace tenon::cli
