// tenon ls: the models that --model can name on this machine.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/json.h"
#include "cli/command.h"
#include "hub/hub.h"

namespace tenon::cli {

namespace {

namespace fs = std::filesystem;

// Of the files themselves; the hub cache's snapshots are links into its blobs.
uint64_t bytes_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return fs::file_size(path, error);
  uint64_t total = 0;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (!fs::is_regular_file(it->path(), gone)) continue;
    uint64_t size = fs::file_size(it->path(), gone);
    if (!gone) total += size;
  }
  return total;
}

class LsVerb : public Verb {
 public:
  void declare(Flags& flags) override { flags.toggle("json", &json_, "one JSON object a line"); }

  Result<int> run() override {
    std::vector<hub::FoundModel> models = hub::list_cached();
    if (auto embedded = hub::locate_model("")) models.insert(models.begin(), *embedded);
    if (models.empty() && !json_) {
      std::fprintf(stderr, "no models here: run scripts/setup for the default one\n");
    }
    size_t width = 5;
    for (const hub::FoundModel& model : models) width = std::max(width, model.name.size());
    for (const hub::FoundModel& model : models) print(model, static_cast<int>(width));
    return 0;
  }

 private:
  void print(const hub::FoundModel& model, int width) const {
    uint64_t bytes = bytes_of(model.path);
    if (json_) {
      Json line = {{"name", model.name}, {"bytes", bytes}, {"path", model.path}};
      std::printf("%s\n", dump_json(line).c_str());
      return;
    }
    std::printf("%-*s  %8.1f MB  %s\n", width, model.name.c_str(), static_cast<double>(bytes) / 1e6,
                model.path.c_str());
  }
  bool json_ = false;
};

}  // namespace

TENON_COMMAND(ls, "models on this machine", LsVerb);

}  // namespace tenon::cli
