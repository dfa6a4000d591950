#include "hub/paths.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace tenon::hub {

namespace fs = std::filesystem;

namespace {

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_component(std::string_view part) {
  auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !part.empty() && part != "." && part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), allowed);
}

// "models--org--repo" -> "org/repo"; empty when it is no such folder.
std::string repo_of_folder(const std::string& folder) {
  constexpr std::string_view kPrefix = "models--";
  if (folder.rfind(kPrefix, 0) != 0) return "";
  std::string repo = folder.substr(kPrefix.size());
  size_t split = repo.find("--");
  if (split == std::string::npos) return "";
  repo.replace(split, 2, "/");
  return is_repo_name(repo) ? repo : "";
}

std::optional<fs::path> newest_snapshot(const fs::path& snapshots) {
  std::optional<fs::path> best;
  fs::file_time_type best_time;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(snapshots, ignored)) {
    std::error_code error;
    fs::file_time_type time = fs::last_write_time(entry.path(), error);
    if (error || !is_model(entry.path()) || (best && time <= best_time)) continue;
    best = entry.path();
    best_time = time;
  }
  return best;
}

}  // namespace

std::vector<fs::path> default_model_dirs(const fs::path& exe_dir) {
  return {(exe_dir / "../../share/models").lexically_normal(),
          (exe_dir / "../share/tenon/models").lexically_normal()};
}

fs::path executable_dir() {
  std::error_code ignored;
#ifdef __APPLE__
  char buffer[4096];
  uint32_t size = sizeof buffer;
  if (_NSGetExecutablePath(buffer, &size) != 0) return {};
  return fs::canonical(buffer, ignored).parent_path();
#else
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
#endif
}

fs::path hub_cache_dir() {
  if (std::string dir = env("HF_HUB_CACHE"); !dir.empty()) return dir;
  if (std::string dir = env("HF_HOME"); !dir.empty()) return fs::path(dir) / "hub";
  return fs::path(env("HOME")) / ".cache/huggingface/hub";
}

bool is_repo_name(std::string_view spec) {
  size_t slash = spec.find('/');
  return slash != std::string_view::npos && is_component(spec.substr(0, slash)) &&
         is_component(spec.substr(slash + 1));
}

std::optional<fs::path> snapshot_of(const fs::path& cache, std::string_view repo) {
  if (!is_repo_name(repo)) return std::nullopt;
  std::string folder = "models--" + std::string(repo);
  folder.replace(folder.find('/'), 1, "--");
  std::string revision;
  std::ifstream(cache / folder / "refs/main") >> revision;
  fs::path named = cache / folder / "snapshots" / revision;
  if (is_component(revision) && is_model(named)) return named;
  return newest_snapshot(cache / folder / "snapshots");
}

std::string name_of(const fs::path& path) {
  fs::path clean = path.lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();  // "model/" -> "model"
  if (clean.filename() == "." || clean.filename() == "..") {
    std::error_code ignored;
    clean = fs::canonical(path, ignored);
  }
  if (clean.filename() == kDefaultFile) return kDefaultName;
  if (clean.extension() == ".gguf") return clean.stem().string();
  if (clean.parent_path().filename() == "snapshots") {
    std::string repo = repo_of_folder(clean.parent_path().parent_path().filename().string());
    if (!repo.empty()) return repo;
  }
  return clean.filename().string();
}

bool is_model(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return fs::exists(path / "config.json", ignored);
  return path.extension() == ".gguf" && fs::is_regular_file(path, ignored);
}

Result<FoundModel> locate_default(const std::vector<fs::path>& dirs) {
  std::string tried;
  for (const fs::path& dir : dirs) {
    if (is_model(dir / kDefaultFile))
      return FoundModel{(dir / kDefaultFile).string(), kDefaultName};
    tried += (tried.empty() ? "" : " and ") + dir.string();
  }
  return not_found("the default model {} is not in {}: run scripts/setup, or name one with --model",
                   kDefaultFile, tried);
}

std::vector<FoundModel> list_cache(const fs::path& cache) {
  std::vector<FoundModel> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache, ignored)) {
    std::string repo = repo_of_folder(entry.path().filename().string());
    if (repo.empty()) continue;
    if (auto snapshot = snapshot_of(cache, repo)) found.push_back({snapshot->string(), repo});
  }
  auto by_name = [](const FoundModel& a, const FoundModel& b) { return a.name < b.name; };
  std::sort(found.begin(), found.end(), by_name);
  return found;
}

}  // namespace tenon::hub
