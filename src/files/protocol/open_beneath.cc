#include "files/protocol/open_beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "os/fd.h"

namespace weft::files {

int open_beneath(int folder, const std::string& path, int flags, std::uint64_t resolve) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve;
  for (int tries = 0;; ++tries) {
    const long fd =
        syscall(SYS_openat2, folder, path.empty() ? "." : path.c_str(), &how, sizeof how);
    // EAGAIN: something was renamed while the kernel checked; it asks to be asked again.
    if (fd >= 0 || errno != EAGAIN || tries == 16) return static_cast<int>(fd);
  }
}

int open_bounded(int folder, const std::string& path, std::size_t links, int flags) {
  if (links >= path.size()) return open_beneath(folder, path, flags);
  const std::size_t rest = path.find_first_not_of('/', links);
  const bool border = links == 0 || path[links - 1] == '/' || path[links] == '/';
  if (!border) {
    errno = EINVAL;
    return -1;
  }
  const os::Fd from(open_beneath(folder, path.substr(0, links), O_PATH | O_DIRECTORY));
  if (!from) return -1;
  return open_beneath(from.get(), rest == std::string::npos ? "" : path.substr(rest), flags,
                      RESOLVE_NO_SYMLINKS);
}

void let_wait(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

std::string proc_name(int fd) {
  char name[32];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  return name;
}

}  // namespace weft::files
