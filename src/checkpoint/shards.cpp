#include "checkpoint/shards.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/mapping.h"
#include "checkpoint/safetensors.h"

namespace tenon::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kVisionSidecar =
    "optiq_vision.safetensors";  // not part of the text model
constexpr size_t kIndexBytesMax = 64 << 20;
constexpr size_t kShardsMax = 10'000;

using Index = std::map<std::string, std::vector<std::string>>;  // shard -> tensors it must hold

std::string in_folder(const std::string& folder, std::string_view file) {
  return (fs::path(folder) / file).string();
}

// A name that stays inside the folder.
bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name == "." || name.find("..") != name.npos) return false;
  return std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c == '/' || c == '\\' || c < 0x20; });
}

Result<Index> parse_index(const std::string& text, const std::string& file) {
  // Not parse_json: weight_map can hold 100,000 names, too many for objects that keep their order.
  const auto doc = nlohmann::json::parse(text, nullptr, false);
  if (doc.is_discarded()) return corrupt("{}: not valid JSON", file);
  const auto map = doc.is_object() ? doc.find("weight_map") : doc.end();
  if (map == doc.end() || !map->is_object()) return corrupt("{}: no weight_map object", file);
  Index index;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get_ref<const std::string&>()))
      return corrupt("{}: tensor {}: {} is not the name of a file in this folder", file,
                     shown(tensor),
                     shown(shard.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
    index[shard.get<std::string>()].push_back(tensor);
  }
  if (index.empty()) return corrupt("{}: weight_map is empty", file);
  return index;
}

// "model-00001-of-00003.safetensors" says how many there are: without an index that is all that
// tells of an absent shard. Other names are taken as they come.
Status check_series(const Index& index, const std::string& folder) {
  const std::string& first = index.begin()->first;
  const size_t of = first.rfind("-of-");
  if (of == std::string::npos || of < 5 || first.size() != of + 9 + kSuffix.size()) return {};
  const std::string stem = first.substr(0, of - 5), total = first.substr(of + 4, 5);
  if (total.find_first_not_of("0123456789") != std::string::npos) return {};
  for (int i = 1; i <= std::stoi(total); ++i) {
    const std::string name = fmt::format("{}{:05}-of-{}{}", stem, i, total, kSuffix);
    if (!index.contains(name))
      return not_found("{}: shard {} is missing, {} says there are {}", folder, name, first,
                       std::stoi(total));
  }
  return {};
}

Result<Index> list_folder(const std::string& folder) {
  Index index;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    // Dot files: a copy to or from macOS leaves "._model.safetensors" beside each shard.
    if (name.ends_with(kSuffix) && name != kVisionSidecar && name[0] != '.') index[name] = {};
  }
  if (error) return not_found("{}: cannot list the folder: {}", folder, error.message());
  if (index.empty()) return not_found("{}: no *.safetensors file", folder);
  TENON_OK(check_series(index, folder));
  return index;
}

// Tensors of many shards, each name once.
class Collection {
 public:
  Status add(const std::string& file, const std::vector<std::string>& expected) {
    TENON_TRY(const Mapping mapping, map_file(file));
    TENON_TRY(auto views, parse_safetensors(mapping.bytes, mapping.keep, file));
    for (WeightView& view : views) {
      const auto [it, fresh] = owner_.emplace(view.name, files_.size());
      if (!fresh)
        return corrupt("{} and {} both hold tensor {}", files_[it->second], file, shown(view.name));
      view.from_file = true;
      found.files.emplace(view.name, file);
      found.tensors.push_back(std::move(view));
    }
    for (const std::string& name : expected) {
      const auto it = owner_.find(name);
      if (it == owner_.end() || it->second != files_.size())
        return not_found("{}: tensor {} is missing, the index places it here", file, shown(name));
    }
    files_.push_back(file);
    return {};
  }

  Shards found;

 private:
  std::unordered_map<std::string, size_t> owner_;  // tensor -> index into files_
  std::vector<std::string> files_;
};

}  // namespace

Result<Shards> load_shards(const std::string& folder) {
  const std::string index_file = in_folder(folder, "model.safetensors.index.json");
  TENON_TRY(const auto index_text, read_small_file(index_file, kIndexBytesMax));
  TENON_TRY(const Index shards,
            index_text ? parse_index(*index_text, index_file) : list_folder(folder));
  if (shards.size() > kShardsMax)
    return too_large("{}: {} shards are over the limit of {}", folder, shards.size(), kShardsMax);
  Collection all;
  for (const auto& [shard, expected] : shards)
    TENON_OK(all.add(in_folder(folder, shard), expected));
  if (all.found.tensors.empty()) return corrupt("{}: the shards hold no tensors", folder);
  return std::move(all.found);
}

}  // namespace tenon::checkpoint
