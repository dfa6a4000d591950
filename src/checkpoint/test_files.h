// Small checkpoint files built in memory for the tests of this room; not part of the program.
// Header only. Thread: one.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/gguf.h"

namespace tenon::checkpoint {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tenon-ck-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const {
    return (std::filesystem::path(path_) / name).string();
  }
  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }

 private:
  std::string path_;
};

template <class T>
std::string raw(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

// A copy of its own, exactly as long as the text: reading past it is seen by AddressSanitizer.
inline std::vector<std::byte> exact(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

inline std::string safetensors_file(std::string_view header, size_t data_bytes) {
  return raw<uint64_t>(header.size()) + std::string(header) + std::string(data_bytes, '\1');
}

// Builds GGUF bytes piece by piece; counts are what was added unless set by hand.
class GgufBuilder {
 public:
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count, value_count;

  GgufBuilder& raw_value(std::string_view key, uint32_t type, std::string_view bytes) {
    values_ += text(key) + raw(type) + std::string(bytes);
    ++num_values_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, uint32_t v) { return raw_value(key, 4, raw(v)); }
  GgufBuilder& f32(std::string_view key, float v) { return raw_value(key, 6, raw(v)); }
  GgufBuilder& boolean(std::string_view key, bool v) { return raw_value(key, 7, raw<uint8_t>(v)); }
  GgufBuilder& string(std::string_view key, std::string_view v) {
    return raw_value(key, 8, text(v));
  }
  GgufBuilder& array(std::string_view key, uint32_t type, uint64_t count, std::string_view bytes) {
    return raw_value(key, 9, raw(type) + raw(count) + std::string(bytes));
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& list) {
    std::string bytes;
    for (const std::string& s : list) bytes += text(s);
    return array(key, 8, list.size(), bytes);
  }
  // `dims` innermost first, as the file has them.
  GgufBuilder& tensor_at(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                         uint64_t offset) {
    tensors_ += text(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (uint64_t d : dims) tensors_ += raw(d);
    tensors_ += raw(type) + raw(offset);
    ++num_tensors_;
    return *this;
  }
  // Appends `bytes` of data for it at the next aligned offset.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                      size_t bytes) {
    data_.resize((data_.size() + 31) / 32 * 32);
    tensor_at(name, dims, type, data_.size());
    return data(bytes);
  }
  GgufBuilder& data(size_t bytes) {
    data_.append(bytes, '\1');
    return *this;
  }
  std::string build() const {
    std::string out = "GGUF" + raw(version) + raw(tensor_count.value_or(num_tensors_)) +
                      raw(value_count.value_or(num_values_)) + values_ + tensors_;
    if (!data_.empty()) out.resize((out.size() + 31) / 32 * 32);
    return out + data_;
  }
  static std::string text(std::string_view s) { return raw<uint64_t>(s.size()) + std::string(s); }

 private:
  std::string values_, tensors_, data_;
  uint64_t num_values_ = 0, num_tensors_ = 0;
};

// A complete llama of one layer, width 4, two tokens more than nothing; pieces can be added.
inline GgufBuilder tiny_llama_head() {
  GgufBuilder b;
  b.string("general.architecture", "llama").u32("llama.embedding_length", 4);
  b.u32("llama.block_count", 1)
      .u32("llama.feed_forward_length", 8)
      .u32("llama.attention.head_count", 2);
  b.u32("llama.attention.head_count_kv", 1).f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  b.u32("llama.context_length", 64).f32("llama.rope.freq_base", 10000.0f);
  return b;
}
inline void add_tiny_llama_tensors(GgufBuilder& b) {
  b.tensor("token_embd.weight", {4, 3}, 0, 48).tensor("output_norm.weight", {4}, 0, 16);
  b.tensor("blk.0.attn_norm.weight", {4}, 0, 16).tensor("blk.0.ffn_norm.weight", {4}, 0, 16);
  b.tensor("blk.0.attn_q.weight", {4, 4}, 0, 64).tensor("blk.0.attn_k.weight", {4, 2}, 0, 32);
  b.tensor("blk.0.attn_v.weight", {4, 2}, 0, 32).tensor("blk.0.attn_output.weight", {4, 4}, 0, 64);
  b.tensor("blk.0.ffn_gate.weight", {4, 8}, 0, 128).tensor("blk.0.ffn_up.weight", {4, 8}, 0, 128);
  b.tensor("blk.0.ffn_down.weight", {8, 4}, 0, 128);
}

template <class T>
void expect_error(const Result<T>& result, Code code, const std::vector<std::string>& parts,
                  std::string_view what) {
  ASSERT_FALSE(result.ok()) << what;
  EXPECT_STREQ(code_name(result.error().code), code_name(code))
      << what << ": " << result.error().message;
  for (const std::string& part : parts)
    EXPECT_THAT(result.error().message, testing::HasSubstr(part)) << what;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << what;
}

}  // namespace tenon::checkpoint
