// Calls that move data.
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>

#include "sockets/granted/granted.h"

using namespace weft::sockets;
using namespace weft::sockets::granted;

WEFT_SEEN ssize_t recv(int fd, void* data, size_t length, int flags) {
  note_call(fd);
  return real().recv(fd, data, length, flags);
}

WEFT_SEEN ssize_t recvfrom(int fd, void* __restrict data, size_t length, int flags,
                           __SOCKADDR_ARG from, socklen_t* __restrict from_length) {
  note_call(fd);
  return real().recvfrom(fd, data, length, flags, from, from_length);
}

WEFT_SEEN ssize_t recvmsg(int fd, msghdr* message, int flags) {
  note_call(fd);
  const ssize_t got = real().recvmsg(fd, message, flags);
  if (got >= 0) note_arrived(*message);
  return got;
}

WEFT_SEEN int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  WEFT_NEXT(recvmmsg);
  const int got = next(fd, messages, count, flags, timeout);
  for (int i = 0; i < got; ++i) note_arrived(messages[i].msg_hdr);
  return got;
}

WEFT_SEEN ssize_t read(int fd, void* data, size_t length) {
  note_call(fd);
  return real().read(fd, data, length);
}

WEFT_SEEN ssize_t readv(int fd, const iovec* parts, int count) {
  note_call(fd);
  return real().readv(fd, parts, count);
}

WEFT_SEEN ssize_t send(int fd, const void* data, size_t length, int flags) {
  note_call(fd);
  return real().send(fd, data, length, flags);
}

WEFT_SEEN ssize_t sendto(int fd, const void* data, size_t length, int flags,
                         __CONST_SOCKADDR_ARG to, socklen_t to_length) {
  note_call(fd);
  return real().sendto(fd, data, length, flags, to, to_length);
}

WEFT_SEEN ssize_t write(int fd, const void* data, size_t length) {
  note_call(fd);
  return real().write(fd, data, length);
}

WEFT_SEEN ssize_t writev(int fd, const iovec* parts, int count) {
  note_call(fd);
  return real().writev(fd, parts, count);
}

WEFT_SEEN ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  note_call(fd);
  note_passed(message);
  return real().sendmsg(fd, message, flags);
}

WEFT_SEEN int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  WEFT_NEXT(sendmmsg);
  note_call(fd);
  for (unsigned i = 0; i < count && messages != nullptr; ++i) note_passed(&messages[i].msg_hdr);
  return next(fd, messages, count, flags);
}

// With the lengths of their buffers, which the C library's headers know.
WEFT_SEEN ssize_t __read_chk(int fd, void* data, size_t length, size_t room) {
  if (length > room) abort();
  return read(fd, data, length);
}

WEFT_SEEN ssize_t __recv_chk(int fd, void* data, size_t length, size_t room, int flags) {
  if (length > room) abort();
  return recv(fd, data, length, flags);
}

WEFT_SEEN ssize_t __recvfrom_chk(int fd, void* __restrict data, size_t length, size_t room,
                                 int flags, __SOCKADDR_ARG from,
                                 socklen_t* __restrict from_length) {
  if (length > room) abort();
  return recvfrom(fd, data, length, flags, from, from_length);
}
