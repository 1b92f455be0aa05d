// The list that an epoll instance has beside what the kernel watches for it: sockets of kind
// kDirect (IWARP mode), whose readiness the kernel does not know. iwarp_epoll.h waits for both.
//
// Threads: any. The list is guarded by the table's mutex.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "rsockets/rs_seen.h"
#include "sockets/iwarp/iwarp_table.h"

namespace weft::sockets::iwarp::epolls {

inline std::atomic<bool> g_any{false};
// Whether there has been any. To the library that serves those sockets there is none.
inline bool any() { return g_any.load(std::memory_order_relaxed) && !Inside::here(); }

struct Member {
  int fd;
  epoll_event event;
  rsockets::RsSeen seen;
  bool off = false;           // EPOLLONESHOT, and it has been told
  std::uint64_t version = 0;  // of all this: what was found out about an older one does not count
};

// A change of the list has to wake the threads that sleep with the old one: the kernel's instance
// watches an eventfd, which is lowered when all of them have come back.
struct Instance {
  std::vector<Member> members;
  int wakeup_fd = -1;
  bool raised = false;
  int sleeping = 0;
  int behind = 0;  // sleepers with an older list
  std::uint64_t changes = 0;
  bool kernel_first = false;  // whose events come first where few are asked for

  ~Instance() {
    if (wakeup_fd >= 0) table::close_internal(wakeup_fd);
  }
  Member* find(int fd) {
    for (Member& one : members) {
      if (one.fd == fd) return &one;
    }
    return nullptr;
  }
  void change();
  // A sleeper has come back, with the list of `then`.
  void came_back(std::uint64_t then) {
    assert(sleeping > 0 && (then == changes || behind > 0));
    --sleeping;
    if (then != changes) --behind;
    assert(behind <= sleeping);
    lower();
  }
  void lower();
};
using InstancePtr = std::shared_ptr<Instance>;

// The kernel's instance reports the wakeup fd with this number, which no program uses.
inline constexpr std::uint64_t kWakeupData = 0x6d1f93c5a8e2470b;

// With the mutex. The list of an instance, or null.
[[nodiscard]] InstancePtr find(int epoll) WEFT_REQUIRES(table::mutex());
// With the mutex. A number that no Member::version has had.
[[nodiscard]] std::uint64_t next_version() WEFT_REQUIRES(table::mutex());

// epoll_ctl(2) of a socket of kind kDirect.
[[nodiscard]] int control(int epoll, int operation, int fd, epoll_event* event);

// The number is about to be closed: an instance, or a socket of some.
void forget(int fd);
// `to` is a copy of the descriptor `from`, perhaps an instance's.
void copy(int from, int to);
// With the mutex: a descriptor of Weft's has another number now.
void moved(int from, int to) WEFT_REQUIRES(table::mutex());
// In a child of fork(): its parent's sockets are none of its own.
void in_child();

}  // namespace weft::sockets::iwarp::epolls
