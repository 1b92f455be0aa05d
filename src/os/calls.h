// System calls that are no cancellation points (os/cancel.h), for the way of data. They do what the
// functions of the C library do that have their names, errno included, and none of them may block.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "os/cancel.h"

// ThreadSanitizer knows only the functions of the C library, and 32-bit machines have other numbers
// for some of the calls.
#if defined(__SANITIZE_THREAD__) || !defined(__LP64__)
#define WEFT_CALLS_BY_LIBRARY 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_CALLS_BY_LIBRARY 1
#endif
#endif

namespace weft::os::calls {

#ifdef WEFT_CALLS_BY_LIBRARY

inline ssize_t recv(int fd, void* to, std::size_t size, int flags) {
  return uncancelled([&] { return ::recv(fd, to, size, flags); });
}
inline ssize_t send(int fd, const void* from, std::size_t size, int flags) {
  return uncancelled([&] { return ::send(fd, from, size, flags); });
}
inline ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return uncancelled([&] { return ::recvmsg(fd, message, flags); });
}
inline ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return uncancelled([&] { return ::sendmsg(fd, message, flags); });
}
inline int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  return uncancelled([&] { return ::recvmmsg(fd, messages, count, flags, nullptr); });
}
inline int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  return uncancelled([&] { return ::sendmmsg(fd, messages, count, flags); });
}
inline ssize_t read(int fd, void* to, std::size_t size) {
  return uncancelled([&] { return ::read(fd, to, size); });
}
inline ssize_t write(int fd, const void* from, std::size_t size) {
  return uncancelled([&] { return ::write(fd, from, size); });
}
inline ssize_t preadv2(int fd, const iovec* to, int count, off_t offset, int flags) {
  return uncancelled([&] { return ::preadv2(fd, to, count, offset, flags); });
}
// epoll_wait() that does not wait.
inline int epoll_look(int epoll, epoll_event* events, int room) {
  return uncancelled([&] { return ::epoll_wait(epoll, events, room, 0); });
}

#else

inline ssize_t recv(int fd, void* to, std::size_t size, int flags) {
  return ::syscall(SYS_recvfrom, fd, to, size, flags, nullptr, nullptr);
}
inline ssize_t send(int fd, const void* from, std::size_t size, int flags) {
  return ::syscall(SYS_sendto, fd, from, size, flags, nullptr, 0);
}
inline ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return ::syscall(SYS_recvmsg, fd, message, flags);
}
inline ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return ::syscall(SYS_sendmsg, fd, message, flags);
}
inline int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  return static_cast<int>(::syscall(SYS_recvmmsg, fd, messages, count, flags, nullptr));
}
inline int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  return static_cast<int>(::syscall(SYS_sendmmsg, fd, messages, count, flags));
}
inline ssize_t read(int fd, void* to, std::size_t size) {
  return ::syscall(SYS_read, fd, to, size);
}
inline ssize_t write(int fd, const void* from, std::size_t size) {
  return ::syscall(SYS_write, fd, from, size);
}
// The kernel takes the offset in two halves; 64-bit machines have all of it in the first.
inline ssize_t preadv2(int fd, const iovec* to, int count, off_t offset, int flags) {
  return ::syscall(SYS_preadv2, fd, to, count, offset, 0, flags);
}
inline int epoll_look(int epoll, epoll_event* events, int room) {
  return static_cast<int>(::syscall(SYS_epoll_pwait, epoll, events, room, 0, nullptr, 0));
}

#endif

}  // namespace weft::os::calls
