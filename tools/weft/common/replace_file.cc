#include "weft/common/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPermissions = 07777;

// And closes it: NFS, SMB and FUSE may refuse only then what was written.
bool write_and_close(int fd, std::string_view text) {
  std::FILE* const out = fdopen(fd, "w");
  if (out == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  const int error = errno;
  const bool closed = std::fclose(out) == 0;
  if (!written) errno = error;
  return written && closed;
}

mode_t usual_permissions() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

// Behind all links. None: they end nowhere, or come by /proc or /dev, whose names of an open file
// lead to that file, and not to whatever has its name then.
std::optional<fs::path> behind_links(fs::path path) {
  constexpr int kLinksMax = 40;
  for (int i = 0; i < kLinksMax; ++i) {
    std::error_code error;
    if (path.native().starts_with("/proc/") || path.native().starts_with("/dev/")) return {};
    const fs::path next = fs::read_symlink(path, error);
    if (error) return path;
    path = path.parent_path() / next;
  }
  return {};
}

bool write_in_place(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return fd >= 0 && write_and_close(fd, text);
}

bool write_beside(const fs::path& path, mode_t permissions, std::string_view text) {
  std::string fresh = (path.parent_path() / ".weft-XXXXXX").string();
  const int fd = mkostemp(fresh.data(), O_CLOEXEC);
  if (fd < 0) return false;
  const bool permitted = fchmod(fd, permissions) == 0;
  const bool written = write_and_close(fd, text) && permitted;
  if (written && std::rename(fresh.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  unlink(fresh.c_str());
  errno = error;
  return false;
}

}  // namespace

bool replace_file(const std::string& path, std::string_view text) {
  // Beyond the limit of its size a write is an error, rather than the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const auto name = name_to_replace(path);
  struct stat about {};
  if (!name) return write_in_place(path, text);
  const bool there = stat(name->c_str(), &about) == 0;
  const mode_t permissions = there ? about.st_mode & kPermissions : usual_permissions();
  if (write_beside(*name, permissions, text)) return true;
  // The folder takes no new file, or what is there is a mount.
  if (!there || (errno != EACCES && errno != EPERM && errno != EBUSY)) return false;
  return write_in_place(path, text);
}

std::optional<std::string> name_to_replace(const std::string& path) {
  const std::optional<fs::path> name = behind_links(path);
  struct stat about {};
  if (!name) return {};
  if (lstat(name->c_str(), &about) != 0) return name->string();
  const bool own = about.st_nlink == 1 && about.st_uid == geteuid();
  if (!S_ISREG(about.st_mode) || !own || access(name->c_str(), W_OK) != 0) return {};
  return name->string();
}

}  // namespace weft::cli
