// Waiting for epoll instances that watch sockets of kind kDirect (IWARP mode): the kernel's events,
// and those of the list that such an instance has (iwarp_members.h).
//
// Threads: any.
#pragma once

#include <poll.h>
#include <sys/epoll.h>

#include <atomic>
#include <cstdint>

#include "sockets/iwarp/iwarp_members.h"
#include "sockets/iwarp/iwarp_table.h"

namespace weft::sockets::iwarp::epolls {

// Whether an accepted connection, of a listener in IWARP mode, was ever watched before it was known
// what it is.
inline std::atomic<bool> g_early{false};
// Whether clean() has anything to do.
inline bool to_clean() {
  return (g_any.load(std::memory_order_relaxed) || g_early.load(std::memory_order_relaxed)) &&
         !Inside::here();
}

// epoll_wait(2), of any instance; -1: without a limit.
[[nodiscard]] int wait(int epoll, epoll_event* events, int most, std::int64_t limit_ns,
                       const sigset_t* mask);
// Removes from the events of the kernel's epoll_wait(2) those that are for Weft alone: the wakeup
// fd of an instance that was made meanwhile, and first octets of a client that turns out to ask for
// RDMA. Returns how many events are left.
[[nodiscard]] int clean(int epoll, epoll_event* events, int count);
// ppoll(2) with such sockets, and such instances, among others.
[[nodiscard]] int poll(pollfd* fds, nfds_t count, std::int64_t limit_ns, const sigset_t* mask);

}  // namespace weft::sockets::iwarp::epolls
