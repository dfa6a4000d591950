#include "checkpoint/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/checkpoint.h"

namespace tenon::checkpoint {

namespace {

struct OpenFile {
  int fd = -1;
  size_t size = 0;
  OpenFile() = default;
  OpenFile(OpenFile&& other) noexcept : fd(std::exchange(other.fd, -1)), size(other.size) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

Error failed(const std::string& path, const char* what, int error) {
  return corrupt("{}: {}: {}", path, what, std::strerror(error));
}

Result<OpenFile> open_regular(const std::string& path) {
  OpenFile file;
  // O_NONBLOCK: a pipe without a writer must be refused, not waited for.
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return not_found("{}: no such file", path);
    return failed(path, "cannot open", errno);
  }
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return failed(path, "cannot stat", errno);
  if (!S_ISREG(info.st_mode)) return invalid("{}: not a regular file", path);
  file.size = static_cast<size_t>(info.st_size);
  return file;
}

}  // namespace

Result<Mapping> map_file(const std::string& path) {
  TENON_TRY(const OpenFile file, open_regular(path));
  if (file.size == 0) return corrupt("{}: the file is empty", path);
  void* base = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (base == MAP_FAILED) return failed(path, "cannot map", errno);
  const size_t size = file.size;
  std::shared_ptr<const void> keep(base,
                                   [size](const void* p) { ::munmap(const_cast<void*>(p), size); });
  return Mapping{{static_cast<const std::byte*>(base), size}, std::move(keep)};
}

Result<std::optional<std::string>> read_small_file(const std::string& path, size_t bytes_max) {
  auto opened = open_regular(path);
  if (!opened.ok()) {
    if (opened.error().code == Code::not_found) return std::optional<std::string>();
    return std::move(opened).error();
  }
  const OpenFile& file = *opened;
  if (file.size > bytes_max)
    return too_large("{}: {} bytes are over the limit of {}", path, file.size, bytes_max);
  std::string text(file.size, '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::read(file.fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(path, "cannot read", errno);
    if (n == 0) return corrupt("{}: became shorter while it was read", path);
    done += static_cast<size_t>(n);
  }
  return std::optional<std::string>(std::move(text));
}

Result<Json> read_json_file(const std::string& path, size_t bytes_max) {
  TENON_TRY(const auto text, read_small_file(path, bytes_max));
  if (!text) return Json();
  JsonLimits limits;
  limits.bytes_max = bytes_max;
  auto doc = parse_json(*text, limits);
  if (!doc.ok()) return corrupt("{}: {}", path, doc.error().message);
  return doc;
}

}  // namespace tenon::checkpoint
