// The TOS octet of a SYN whose sender will ask for RDMA: a server in IWARP mode that speaks first
// waits for the question.
//
// Threads: any.
#pragma once

namespace weft::sockets::iwarp {

// Whether the SYN of an accepted connection was marked. The kernel gives it out once, and only of a
// listener that save_syns() was called for.
[[nodiscard]] bool syn_was_marked(int fd);
void save_syns(int listener);

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

}  // namespace weft::sockets::iwarp
