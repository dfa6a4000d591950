// convert() (declared in checkpoint.h): plan, shards, small files, one rename.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "checkpoint/conversion.h"
#include "checkpoint/convert_files.h"
#include "checkpoint/quantization.h"

namespace tenon::checkpoint {

namespace {

namespace fs = std::filesystem;
namespace mx = mlx::core;

// A folder beside the wanted one, which takes its name in the end or is removed.
class UnfinishedFolder {
 public:
  static Result<UnfinishedFolder> create(const std::string& wanted) {
    fs::path path = fs::path(wanted).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();  // a trailing slash
    std::error_code error;
    if (fs::exists(fs::symlink_status(path, error)))
      return invalid("{} exists; convert writes a new folder", wanted);
    UnfinishedFolder folder(path.string(), fmt::format("{}.part-{}", path.string(), getpid()));
    if (fs::create_directory(folder.path_, error)) return folder;
    const std::string why = error ? error.message() : "it exists";
    Error failed = unavailable("cannot make {}: {}", folder.path_, why);
    folder.path_.clear();
    return failed;
  }
  UnfinishedFolder(UnfinishedFolder&& other) noexcept
      : wanted_(std::move(other.wanted_)), path_(std::exchange(other.path_, {})) {}
  UnfinishedFolder& operator=(UnfinishedFolder&&) = delete;
  ~UnfinishedFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  Status finish() {
    if (std::rename(path_.c_str(), wanted_.c_str()) != 0)
      return unavailable("cannot rename {} to {}: {}", path_, wanted_, std::strerror(errno));
    path_.clear();
    return {};
  }

 private:
  UnfinishedFolder(std::string wanted, std::string path)
      : wanted_(std::move(wanted)), path_(std::move(path)) {}
  std::string wanted_, path_;
};

// Jobs in their order, as many to a file as fit; at least one.
std::vector<std::span<const Job>> shards_of(const std::vector<Job>& jobs, uint64_t bytes_max) {
  std::vector<std::span<const Job>> shards;
  uint64_t bytes = 0;
  for (size_t first = 0, i = 0; i < jobs.size(); ++i) {
    uint64_t job_bytes = 0;
    for (const TensorHeader& tensor : jobs[i].out) job_bytes += tensor.bytes();
    if (i > first && bytes + job_bytes > bytes_max) {
      first = i;
      bytes = 0;
    }
    bytes += job_bytes;
    if (i == first) shards.emplace_back();
    shards.back() = {jobs.data() + first, i - first + 1};
  }
  return shards;
}

std::span<const std::byte> bytes_of(const mx::array& array) {
  return {array.data<std::byte>(), array.nbytes()};
}

class Writer {
 public:
  Writer(const ConversionPlan& plan, const ConvertOptions& options, std::string folder)
      : plan_(plan), options_(options), folder_(std::move(folder)) {
    for (const Job& job : plan.jobs) source_bytes_ += job.source_bytes();
  }

  Result<Converted> write_weights() {
    const auto shards = shards_of(plan_.jobs, options_.shard_bytes_max);
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string file = shards.size() == 1 ? "model.safetensors"
                                                  : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                                i + 1, shards.size());
      TENON_OK(write_shard(shards[i], file));
    }
    if (shards.size() > 1) TENON_OK(write_index(folder_, bytes_, shard_of_));
    uint64_t elements = 0;
    for (const Job& job : plan_.jobs) elements += job.elements();
    return Converted{static_cast<int>(shards.size()), bytes_,
                     8.0 * static_cast<double>(bytes_) / static_cast<double>(elements)};
  }

 private:
  Status write_shard(std::span<const Job> jobs, const std::string& file) {
    std::vector<TensorHeader> headers;
    for (const Job& job : jobs) headers.insert(headers.end(), job.out.begin(), job.out.end());
    for (const TensorHeader& tensor : headers) {
      shard_of_[tensor.name] = file;
      bytes_ += tensor.bytes();
    }
    TENON_TRY(SafetensorsWriter writer,
              SafetensorsWriter::create((fs::path(folder_) / file).string(), headers,
                                        {{"format", "mlx"}}));
    for (const Job& job : jobs) {
      for (const mx::array& array : compute(job)) TENON_OK(writer.append(bytes_of(array)));
      done_ += job.source_bytes();
      const double fraction = static_cast<double>(done_) / static_cast<double>(source_bytes_);
      if (options_.on_progress && !options_.on_progress(fraction))
        return cancelled("stopped; nothing was written");
    }
    return writer.finish();
  }

  const ConversionPlan& plan_;
  const ConvertOptions& options_;
  const std::string folder_;
  std::map<std::string, std::string> shard_of_;
  uint64_t bytes_ = 0, done_ = 0, source_bytes_ = 0;
};

}  // namespace

Result<Converted> convert(Checkpoint& from, const std::string& to,
                          const ConvertOptions& options) try {
  const std::string& source = from.manifest().path;
  if (options.scheme) TENON_OK(check_scheme(*options.scheme));
  for (const auto& own : options.overrides) TENON_OK(check_scheme(own.scheme));
  TENON_TRY(const Json quantization, find_quantization(from.manifest().config, source));
  TENON_TRY(const ConversionPlan plan,
            plan_conversion(from.weights(), quantization, options, source));
  TENON_TRY(UnfinishedFolder folder, UnfinishedFolder::create(to));
  mx::set_default_device(mx::Device::cpu);  // the same bits on every machine
  TENON_TRY(const Converted converted, Writer(plan, options, folder.path()).write_weights());
  const Json config = converted_config(from.manifest().config, plan.quantization, options.dtype);
  TENON_OK(write_file((fs::path(folder.path()) / "config.json").string(), readable(config)));
  TENON_OK(write_text_files(from, options.tokenizer_json, folder.path()));
  TENON_OK(folder.finish());
  return converted;
} catch (const std::exception& e) {
  return internal("{}: {}", from.manifest().path, e.what());
}

}  // namespace tenon::checkpoint
