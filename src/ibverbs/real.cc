#include "ibverbs/real.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ibverbs/driver_registrations.h"

namespace weft::ibverbs {

int& HideWeftDevices::depth() {
  static thread_local int depth = 0;
  return depth;
}

// By the system call: access() may have been led to Weft's own tree (paths/paths.c).
bool machine_has_rdma() {
  return syscall(SYS_faccessat, AT_FDCWD, "/sys/class/infiniband", F_OK) == 0;
}

RealLibrary& real_ibverbs() {
  static constinit RealLibrary library("libibverbs.so.1", WEFT_SYSTEM_IBVERBS,
                                       replay_driver_registrations);
  return library;
}

}  // namespace weft::ibverbs
