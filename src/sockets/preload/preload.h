// Declarations that all parts of the preload library share. The parts are:
//
//   preload_connect.cc  socket, connect, listen, accept
//   preload_decide.cc   what a descriptor is, and what an accepted connection's first octets ask
//   for preload_setup.cc    how a TCP socket becomes the end of a channel syn_mark.cc         the
//   mark of a SYN whose sender will ask for RDMA preload_ways.cc     which connections go over RDMA
//   preload_data.cc     read, write and their sisters
//   preload_wait.cc     poll, select, epoll
//   preload_numbers.cc  close, dup, fcntl, ioctl, fork
//   preload_exec.cc     exec, and children of vfork()
//   preload_relay.cc    sockets for holders that can't be followed
//   preload_passed.cc   passing descriptors on
//   preload_options.cc  options and names
//   preload_direct.cc   sockets in IWARP mode; direct_library.cc: the library that serves them
//   preload_epoll.cc    epoll instances that watch such; preload_members.cc: their lists
//   preload_hot.cc      sockets whose rings a busy thread looks into
//   preload_settings.cc the rules, and which path a connection took
//
// Threads: any. A program's own calls come in here, so no call of the C++ library that allocates
// may be on the way of a plain socket's data.
#pragma once

#include <cerrno>

#include "sockets/preload/socket_table.h"
#include "sockets/real_calls.h"

namespace weft::sockets {

inline bool blocks(const Channel& channel, int flags) {
  return (flags & MSG_DONTWAIT) == 0 && channel.end().nonblocking.load() == 0;
}

inline int fail_with(int error) {
  errno = error;
  return -1;
}

}  // namespace weft::sockets
