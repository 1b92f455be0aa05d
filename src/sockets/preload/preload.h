// Declarations that all parts of the preload library share. The parts are:
//
//   preload_setup.cc    connect, listen, accept
//   preload_ways.cc     which connections go over RDMA
//   preload_data.cc     read, write and their sisters
//   preload_wait.cc     poll, select, epoll
//   preload_numbers.cc  close, dup, fcntl, ioctl, fork
//   preload_exec.cc     exec, and children of vfork()
//   preload_relay.cc    sockets for holders that can't be followed; passing descriptors on
//   preload_options.cc  options and names
//   preload_direct.cc   sockets in IWARP mode; preload_epoll.cc: epoll instances that watch such
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
