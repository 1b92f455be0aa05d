// Fork support. A software device pins no pages, so there is nothing to protect from copy-on-write.

#include <infiniband/verbs.h>

#include "ibverbs/real.h"

using namespace weft::ibverbs;

extern "C" {

// Real devices in the same process do need it, and before they register memory. Programs call it
// first of all, when nothing has asked for the real library yet; so it is loaded here where the
// machine has such devices.
int ibv_fork_init(void) {
  auto* real = machine_has_rdma() && real_ibverbs().load() ? WEFT_REAL(ibv_fork_init) : nullptr;
  return real != nullptr ? real() : 0;
}

ibv_fork_status ibv_is_fork_initialized(void) {
  auto* real = WEFT_REAL(ibv_is_fork_initialized);
  return real != nullptr ? real() : IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void* base, size_t size);
int ibv_dofork_range(void* base, size_t size);

int ibv_dontfork_range(void* base, size_t size) {
  auto* real = WEFT_REAL(ibv_dontfork_range);
  return real != nullptr ? real(base, size) : 0;
}

int ibv_dofork_range(void* base, size_t size) {
  auto* real = WEFT_REAL(ibv_dofork_range);
  return real != nullptr ? real(base, size) : 0;
}

}  // extern "C"
