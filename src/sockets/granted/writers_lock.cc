#include "sockets/granted/writers_lock.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>

#include "base/cpu_pause.h"
#include "os/fork.h"
#include "sockets/own_memory.h"
#include "sockets/real_calls.h"

namespace weft::sockets::granted {
namespace {

// Another process may have the number of a thread that has ended. The threads are those of the
// process whose memory this is, which is the parent of a child of vfork().
bool dead(std::uint32_t thread) {
  const int error = errno;
  const bool gone =
      real().syscall(SYS_tgkill, owner_of_memory(), static_cast<int>(thread), 0) != 0 &&
      errno == ESRCH;
  errno = error;
  return gone;
}

}  // namespace

std::uint32_t this_thread() {
  // getpid() would be a system call. The one thread of a child of fork() has another id.
  thread_local std::uint32_t id = 0;
  thread_local std::uint32_t generation = 0;
  if (id == 0 || generation != os::fork_generation()) {
    id = static_cast<std::uint32_t>(real().syscall(SYS_gettid));
    generation = os::fork_generation();
  }
  return id;
}

void WritersLock::lock(std::uint32_t me) {
  for (int i = 0; !try_lock(me); ++i) {
    assert(!held_by(me));
    if (i < 100) {
      cpu_pause();
      continue;
    }
    std::uint32_t holder = holder_.load();
    if (holder != 0 && dead(holder) && holder_.compare_exchange_strong(holder, me)) return;
    sched_yield();
  }
}

}  // namespace weft::sockets::granted
