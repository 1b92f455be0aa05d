// libweft-sockets-iwarp.so, which `weft run --sockets` preloads in front of the granted way: TCP
// sockets of the program become rsockets where it asks for that (<weft/sockets.h>). A program that
// does not ask has nothing in the table here, and each call goes on to the next library.
//
//   iwarp_table.cc      what each descriptor number is
//   iwarp_options.cc    WEFT_MODE; options and names
//   iwarp_connect.cc    connect, listen, accept
//   iwarp_decide.cc     what an accepted connection's first octets ask for; syn_mark.cc: the mark
//                       of a SYN whose sender will ask
//   direct.cc           how a socket becomes an rsocket; direct_library.cc: what serves it then
//   iwarp_data.cc       read, write and their sisters
//   iwarp_wait.cc       poll, select, epoll
//   iwarp_epoll.cc      epoll instances that watch rsockets; iwarp_members.cc: their lists
//   iwarp_numbers.cc    close, dup, fcntl, ioctl, fork
//
// Threads: any. A program's own calls come in here, so no call of the C++ library that allocates
// may be on the way of a plain socket's data.
#pragma once

#include <cerrno>

#include "sockets/iwarp/iwarp_table.h"
#include "sockets/real_calls.h"

namespace weft::sockets::iwarp {

inline int fail_with(int error) {
  errno = error;
  return -1;
}

}  // namespace weft::sockets::iwarp
