// The TOS octet of a SYN whose sender will ask for RDMA: a server that speaks first waits for it.
//
// Threads: any.
#pragma once

#include "sockets/preload/socket_table.h"

namespace weft::sockets {

// Marks the SYN of a socket that is about to connect, until unmark_syn().
void mark_syn(int fd, Conn& conn, int family);
void unmark_syn(int fd, Conn& conn);

// Whether the SYN of an accepted connection was marked. The kernel gives it out once.
[[nodiscard]] bool syn_was_marked(int fd);

// The mark of a SYN, while it may be sent. A connect that does not wait keeps it.
class TosMark {
 public:
  TosMark(int fd, int family);
  ~TosMark();
  TosMark(const TosMark&) = delete;
  TosMark& operator=(const TosMark&) = delete;

 private:
  const int fd_;
  const int level_;
  const int name_;
  int before_ = 0;
  bool set_ = false;
  bool waits_ = false;
};

}  // namespace weft::sockets
