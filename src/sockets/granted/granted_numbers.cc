// Calls that make, copy and close descriptor numbers.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "sockets/granted/granted.h"
#include "sockets/granted/number_states.h"

namespace weft::sockets::granted {
namespace {

// `made` is a new number of something that is not a socket which may get a lane.
int other(int made) {
  if (made >= 0 && !borrowing()) forget_closed(made);
  return made;
}

// `forks`: before the kernel gave it.
int fresh(int made, states::From from, std::uint32_t forks) {
  if (made >= 0 && !borrowing()) {
    forget_closed(made);
    numbers::note_fresh(made, forks);
    states::begin(made, from);
  }
  return made;
}

int instance(int made) {
  if (made >= 0 && !borrowing()) numbers::note_instance(made);
  return other(made);
}

// Two numbers of one socket.
int copied(int from, int made) {
  if (made >= 0 && made != from) {
    leave_to_kernel(from, Why::kShared);
    forget_closed(made);
    states::copy(from, made);
  }
  return made;
}

// Before `from` is copied to the number `to`, which is closed by that.
void before_copy(int from, int to) {
  if (from == to || real().fcntl(from, F_GETFD) == -1) return;
  leave_to_copy(to);
}

}  // namespace
}  // namespace weft::sockets::granted

using namespace weft::sockets;
using namespace weft::sockets::granted;

WEFT_SEEN int socket(int domain, int type, int protocol) {
  const std::uint32_t forks = numbers::forks();
  const int made = real().socket(domain, type, protocol);
  const bool tcp = (domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM &&
                   (protocol == 0 || protocol == IPPROTO_TCP);
  return tcp ? fresh(made, states::From::kSocket, forks) : other(made);
}

WEFT_SEEN int accept4(int fd, __SOCKADDR_ARG address, socklen_t* length, int flags) {
  const std::uint32_t forks = numbers::forks();
  const int made = real().accept4(fd, address, length, flags);
  return fresh(made, states::From::kAccept, forks);
}

WEFT_SEEN int accept(int fd, __SOCKADDR_ARG address, socklen_t* __restrict length) {
  return accept4(fd, address, length, 0);
}

WEFT_SEEN int close(int fd) {
  leave_to_close(fd);
  return real().close(fd);
}

WEFT_SEEN int close_range(unsigned first, unsigned last, int flags) {
  if ((static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) == 0 && !borrowing()) {
    leave_range(first, last, closes);
  }
  return real().close_range(first, last, flags);
}

WEFT_SEEN void closefrom(int first) {
  if (!borrowing()) leave_range(static_cast<unsigned>(std::max(first, 0)), ~0U, closes);
  real().closefrom(first);
}

WEFT_SEEN int dup(int fd) { return copied(fd, real().dup(fd)); }

WEFT_SEEN int dup2(int from, int to) {
  before_copy(from, to);
  return copied(from, real().dup2(from, to));
}

WEFT_SEEN int dup3(int from, int to, int flags) {
  before_copy(from, to);
  return copied(from, real().dup3(from, to, flags));
}

namespace {

void note_flags(int fd, long flags) {
  with_lane(fd, [=](Lane& lane) {
    lane.nonblocking = (flags & O_NONBLOCK) != 0;
    // The kernel sends a signal for each arrival.
    if ((flags & O_ASYNC) != 0) leave_to_kernel(fd, Why::kOption);
  });
}

int control(int fd, int command, long value) {
  const int result = real().fcntl(fd, command, value);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return copied(fd, result);
  if (command == F_SETFL && result == 0) note_flags(fd, value);
  return result;
}

}  // namespace

WEFT_SEEN int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  return control(fd, command, value);
}

WEFT_SEEN int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  return control(fd, command, value);
}

// stdio reads and writes by calls that are not seen.
WEFT_SEEN FILE* fdopen(int fd, const char* mode) {
  leave_to_kernel(fd, Why::kCall);
  return real().fdopen(fd, mode);
}

// Others that give numbers: of one that was closed by a call that was not seen, perhaps.
WEFT_SEEN int pipe(int ends[2]) {
  WEFT_NEXT(pipe);
  const int result = next(ends);
  if (result == 0) std::for_each(ends, ends + 2, other);
  return result;
}

WEFT_SEEN int pipe2(int ends[2], int flags) {
  WEFT_NEXT(pipe2);
  const int result = next(ends, flags);
  if (result == 0) std::for_each(ends, ends + 2, other);
  return result;
}

WEFT_SEEN int socketpair(int domain, int type, int protocol, int ends[2]) {
  const int result = real().socketpair(domain, type, protocol, ends);
  if (result == 0) std::for_each(ends, ends + 2, other);
  return result;
}

WEFT_SEEN int eventfd(unsigned count, int flags) {
  WEFT_NEXT(eventfd);
  return other(next(count, flags));
}

WEFT_SEEN int epoll_create(int size) {
  WEFT_NEXT(epoll_create);
  return instance(next(size));
}

WEFT_SEEN int epoll_create1(int flags) {
  WEFT_NEXT(epoll_create1);
  return instance(next(flags));
}

#define WEFT_SEEN_OPEN(name)                             \
  WEFT_SEEN int name(const char* path, int flags, ...) { \
    WEFT_NEXT(name);                                     \
    va_list arguments;                                   \
    va_start(arguments, flags);                          \
    const mode_t mode = va_arg(arguments, mode_t);       \
    va_end(arguments);                                   \
    return other(next(path, flags, mode));               \
  }
#define WEFT_SEEN_OPENAT(name)                                       \
  WEFT_SEEN int name(int folder, const char* path, int flags, ...) { \
    WEFT_NEXT(name);                                                 \
    va_list arguments;                                               \
    va_start(arguments, flags);                                      \
    const mode_t mode = va_arg(arguments, mode_t);                   \
    va_end(arguments);                                               \
    return other(next(folder, path, flags, mode));                   \
  }
WEFT_SEEN_OPEN(open)
WEFT_SEEN_OPEN(open64)
WEFT_SEEN_OPENAT(openat)
WEFT_SEEN_OPENAT(openat64)
