// The errors that a file system has only for close().
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace weft::os {

// Has the file system report what it would at close(): NFS, SMB and FUSE may refuse only then what
// was written, as of a full disk. The file stays open, with its locks of flock(). Any thread.
//   An errno, which no later call need tell again. EBADF: `fd` is not open
[[nodiscard]] inline int report_of_close(int fd) noexcept {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return copy >= 0 && ::close(copy) == 0 ? 0 : errno;
}

}  // namespace weft::os
