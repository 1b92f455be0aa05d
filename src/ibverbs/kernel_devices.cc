#include "ibverbs/kernel_devices.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::ibverbs {

// By the system call: opendir() may have been led to Weft's own tree (paths/paths.c).
bool kernel_has_rdma_device() {
  const long fd =
      syscall(SYS_openat, AT_FDCWD, "/sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd < 0) return false;
  DIR* folder = fdopendir(static_cast<int>(fd));
  if (folder == nullptr) {
    close(static_cast<int>(fd));
    return false;
  }
  bool found = false;
  while (const dirent* entry = readdir(folder)) found = found || entry->d_name[0] != '.';
  closedir(folder);
  return found;
}

}  // namespace weft::ibverbs
