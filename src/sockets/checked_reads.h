// Forms of reads that know the length of the buffer: the C library's headers use them where they
// can. They are defined here, so each preload library includes this in the file that defines those.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "sockets/real_calls.h"

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
