#include "weft/common/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

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
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return write_beside(path, usual_permissions(), text);
  if (!S_ISREG(about.st_mode)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write_and_close(fd, text);
  }
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return write_beside(error ? fs::path(path) : target, about.st_mode & kPermissions, text);
}

}  // namespace weft::cli
