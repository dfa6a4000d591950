// Writes one safetensors file: 8 bytes of header length (little-endian), a JSON header padded with
// spaces to a multiple of 8, then the tensors' bytes in the order given. The header is known before
// the data, so a file of any size is written holding one tensor at a time.
// The file appears whole or not at all: it is written beside as PATH.part and renamed by finish();
// without finish() the destructor removes it. Thread: one. Errors: unavailable, naming the path and
// the system's reason. Format: https://github.com/huggingface/safetensors#format
#pragma once
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/weight.h"

namespace tenon::checkpoint {

struct TensorHeader {
  std::string name;
  Format format = Format::f32;  // dense
  std::vector<int64_t> shape;
  uint64_t bytes() const;
};

class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::string& path,
                                          std::span<const TensorHeader> tensors,
                                          const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();
  // The next tensor's bytes, exactly as many as its header says.
  Status append(std::span<const std::byte> bytes);
  Status finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  SafetensorsWriter(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  Status write(const void* data, size_t size);
  Error failed() const;
  std::string unfinished() const { return path_ + ".part"; }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;  // null once finished
  std::vector<uint64_t> due_;  // bytes of the tensors to come, the next one last
};

}  // namespace tenon::checkpoint
