// The rsocket functions. rpoll and rselect work on plain descriptors, because programs that never
// open an rsocket import them (rping does). The others answer ENOSYS and say so once.

#include <poll.h>
#include <rdma/rsocket.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "ibverbs/errors.h"
#include "rdmacm/forward.h"

using weft::ibverbs::fail_minus;

namespace {

int no_rsockets() {
  static std::atomic<bool> said{false};
  const char* level = secure_getenv("WEFT_LOG");
  const bool quiet = level != nullptr && std::string_view(level) == "off";
  if (!said.exchange(true) && !quiet) {
    std::fprintf(stderr,
                 "weft: rsockets are not part of Weft's librdmacm: rsocket() and its sisters fail "
                 "with ENOSYS. Use plain sockets, or rdma_cm with verbs.\n");
  }
  return fail_minus(ENOSYS);
}

}  // namespace

extern "C" {

int rpoll(pollfd* fds, nfds_t count, int timeout) {
  WEFT_CM_FORWARD(rpoll, fds, count, timeout)
  return poll(fds, count, timeout);
}

int rselect(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  WEFT_CM_FORWARD(rselect, count, read, write, except, timeout)
  return select(count, read, write, except, timeout);
}

int rsocket(int domain, int type, int protocol) {
  WEFT_CM_FORWARD(rsocket, domain, type, protocol)
  return no_rsockets();
}

int rbind(int fd, const sockaddr* address, socklen_t length) {
  WEFT_CM_FORWARD(rbind, fd, address, length)
  return no_rsockets();
}

int rlisten(int fd, int backlog) {
  WEFT_CM_FORWARD(rlisten, fd, backlog)
  return no_rsockets();
}

int raccept(int fd, sockaddr* address, socklen_t* length) {
  WEFT_CM_FORWARD(raccept, fd, address, length)
  return no_rsockets();
}

int rconnect(int fd, const sockaddr* address, socklen_t length) {
  WEFT_CM_FORWARD(rconnect, fd, address, length)
  return no_rsockets();
}

int rshutdown(int fd, int how) {
  WEFT_CM_FORWARD(rshutdown, fd, how)
  return no_rsockets();
}

int rclose(int fd) {
  WEFT_CM_FORWARD(rclose, fd)
  return no_rsockets();
}

ssize_t rrecv(int fd, void* buffer, size_t length, int flags) {
  WEFT_CM_FORWARD(rrecv, fd, buffer, length, flags)
  return no_rsockets();
}

ssize_t rrecvfrom(int fd, void* buffer, size_t length, int flags, sockaddr* from,
                  socklen_t* from_length) {
  WEFT_CM_FORWARD(rrecvfrom, fd, buffer, length, flags, from, from_length)
  return no_rsockets();
}

ssize_t rrecvmsg(int fd, msghdr* message, int flags) {
  WEFT_CM_FORWARD(rrecvmsg, fd, message, flags)
  return no_rsockets();
}

ssize_t rsend(int fd, const void* buffer, size_t length, int flags) {
  WEFT_CM_FORWARD(rsend, fd, buffer, length, flags)
  return no_rsockets();
}

ssize_t rsendto(int fd, const void* buffer, size_t length, int flags, const sockaddr* to,
                socklen_t to_length) {
  WEFT_CM_FORWARD(rsendto, fd, buffer, length, flags, to, to_length)
  return no_rsockets();
}

ssize_t rsendmsg(int fd, const msghdr* message, int flags) {
  WEFT_CM_FORWARD(rsendmsg, fd, message, flags)
  return no_rsockets();
}

ssize_t rread(int fd, void* buffer, size_t length) {
  WEFT_CM_FORWARD(rread, fd, buffer, length)
  return no_rsockets();
}

ssize_t rreadv(int fd, const iovec* parts, int count) {
  WEFT_CM_FORWARD(rreadv, fd, parts, count)
  return no_rsockets();
}

ssize_t rwrite(int fd, const void* buffer, size_t length) {
  WEFT_CM_FORWARD(rwrite, fd, buffer, length)
  return no_rsockets();
}

ssize_t rwritev(int fd, const iovec* parts, int count) {
  WEFT_CM_FORWARD(rwritev, fd, parts, count)
  return no_rsockets();
}

int rgetpeername(int fd, sockaddr* address, socklen_t* length) {
  WEFT_CM_FORWARD(rgetpeername, fd, address, length)
  return no_rsockets();
}

int rgetsockname(int fd, sockaddr* address, socklen_t* length) {
  WEFT_CM_FORWARD(rgetsockname, fd, address, length)
  return no_rsockets();
}

int rsetsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  WEFT_CM_FORWARD(rsetsockopt, fd, level, name, value, length)
  return no_rsockets();
}

int rgetsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  WEFT_CM_FORWARD(rgetsockopt, fd, level, name, value, length)
  return no_rsockets();
}

int rfcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  WEFT_CM_FORWARD(rfcntl, fd, command, argument)
  return no_rsockets();
}

off_t riomap(int fd, void* buffer, size_t length, int protection, int flags, off_t offset) {
  WEFT_CM_FORWARD(riomap, fd, buffer, length, protection, flags, offset)
  return no_rsockets();
}

int riounmap(int fd, void* buffer, size_t length) {
  WEFT_CM_FORWARD(riounmap, fd, buffer, length)
  return no_rsockets();
}

size_t riowrite(int fd, const void* buffer, size_t count, off_t offset, int flags) {
  WEFT_CM_FORWARD(riowrite, fd, buffer, count, offset, flags)
  return static_cast<size_t>(no_rsockets());
}

}  // extern "C"
