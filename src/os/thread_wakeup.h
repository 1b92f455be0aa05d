// The event descriptor on which the calling thread sleeps until others raise it (os/event_fd.h).
#pragma once

#include "os/event_fd.h"
#include "os/fork.h"

namespace weft::os {

class ThreadWakeup {
 public:
  // Made when it is first asked for, and anew in a child of fork(), which shares that of its
  // parent. -1 with errno where there are no descriptors; the next call tries again.
  [[nodiscard]] static int get() {
    Own& mine = own();
    if (!mine.fd || mine.generation != fork_generation()) {
      mine.fd = make_event();
      mine.generation = fork_generation();
    }
    return mine.fd.get();
  }
  // -1: it was never asked for.
  [[nodiscard]] static int known() { return own().fd.get(); }

 private:
  struct Own {
    Fd fd;
    std::uint32_t generation = 0;
  };
  static Own& own() {
    thread_local Own one;
    return one;
  }
};

}  // namespace weft::os
