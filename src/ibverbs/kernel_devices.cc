#include "ibverbs/kernel_devices.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/fd.h"

namespace weft::ibverbs {

// By the system call: opendir() may have been led to Weft's own tree (paths/paths.c).
bool kernel_has_rdma_device() {
  os::Fd fd(static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/sys/class/infiniband",
                                     O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)));
  DIR* folder = fd ? fdopendir(fd.get()) : nullptr;
  if (folder == nullptr) return false;
  static_cast<void>(fd.release());  // the stream has it
  bool found = false;
  while (const dirent* entry = readdir(folder)) found = found || entry->d_name[0] != '.';
  closedir(folder);
  return found;
}

}  // namespace weft::ibverbs
