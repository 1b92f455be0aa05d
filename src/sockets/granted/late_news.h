// News of a connection that the kernel has told, and the program has still to act on: an error,
// which the kernel tells once, and the end of the peer's octets.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cassert>

namespace weft::sockets::granted {

class LateNews {
 public:
  // REQUIRES: no call knows the lane.
  void begin_again() {
    error_ = 0;
    ended_ = false;
  }

  // The program hears of the error by its next call.
  void keep_error(int error) {
    assert(error > 0);
    error_ = error;
  }
  // 0: none. The next call gets none.
  [[nodiscard]] int take_error() {
    return error_.load(std::memory_order_relaxed) == 0 ? 0 : error_.exchange(0);
  }

  // The end, or an error: the peer reads no more, perhaps.
  void note_end() { ended_ = true; }
  [[nodiscard]] bool ended() const { return ended_.load(); }

 private:
  std::atomic<int> error_{0};
  std::atomic<bool> ended_{false};
};

}  // namespace weft::sockets::granted
