// epoll instances that watch sockets of kind kDirect (IWARP mode), whose readiness the kernel does
// not know. Such an instance has a list of them beside what the kernel watches for it; waiting for
// it is waiting for both.
//
// Threads: any. The list is guarded by the table's mutex.
#pragma once

#include <poll.h>
#include <sys/epoll.h>

#include <atomic>
#include <cstdint>

#include "sockets/preload/socket_table.h"

namespace weft::sockets::epolls {

inline std::atomic<bool> g_any{false};
// Whether there has been any. To the library that serves those sockets there is none.
inline bool any() { return g_any.load(std::memory_order_relaxed) && !Inside::here(); }

// Whether an accepted connection, of a listener in IWARP mode, was ever watched before it was known
// what it is.
inline std::atomic<bool> g_early{false};
// Whether clean() has anything to do.
inline bool to_clean() {
  return (g_any.load(std::memory_order_relaxed) || g_early.load(std::memory_order_relaxed)) &&
         !Inside::here();
}

// epoll_ctl(2) of a socket of kind kDirect.
[[nodiscard]] int control(int epoll, int operation, int fd, epoll_event* event);
// epoll_wait(2), of any instance; -1: without a limit.
[[nodiscard]] int wait(int epoll, epoll_event* events, int most, std::int64_t limit_ns,
                       const sigset_t* mask);
// Removes from the events of the kernel's epoll_wait(2) those that are for Weft alone: the wakeup
// fd of an instance that was made meanwhile, and first octets of a client that turns out to ask for
// RDMA. Returns how many events are left.
[[nodiscard]] int clean(int epoll, epoll_event* events, int count);
// ppoll(2) with such sockets, and such instances, among others.
[[nodiscard]] int poll(pollfd* fds, nfds_t count, std::int64_t limit_ns, const sigset_t* mask);

// The number is about to be closed: an instance, or a socket of some.
void forget(int fd);
// `to` is a copy of the descriptor `from`, perhaps an instance's.
void copy(int from, int to);
// With the mutex: a descriptor of Weft's has another number now.
void moved(int from, int to);
// In a child of fork(): its parent's sockets are none of its own.
void in_child();

}  // namespace weft::sockets::epolls
