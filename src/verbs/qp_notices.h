// Reports that the connection of a queue pair, or its wiring, has still to get. They are delivered
// without the lane held, because the connection may release the last handle to the queue pair in
// the call. In order, by one thread at a time.
//
// Any thread.
#pragma once

#include <weft/queue_pair.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "os/lock.h"
#include "proto/ending.h"
#include "wire/terminate.h"

namespace weft::verbs {

class QpConnection;

class QpNotices {
 public:
  struct Notices {
    std::shared_ptr<QpConnection> connection;
    bool first_fpdu = false;
    bool down = false;
    proto::StreamEnd how = proto::StreamEnd::kOpen;
    TerminateCode code;
    bool by_peer = false;
    std::uint32_t generation = 0;  // of a wired queue pair
    bool outlived = false;         // which stays as it is
    bool stranded = false;         // with work that no connection can carry
  };

  // `note` writes down what is to be reported beside what is due already.
  template <class F>
  void add(F&& note) {
    const os::SpinGuard lock(lock_);
    note(notices_);
    due_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool due() const noexcept { return due_.load(std::memory_order_acquire); }
  // Calls `tell` with what is due until nothing is. A second thread leaves it to the first.
  template <class F>
  void deliver(F&& tell) {
    while (true) {
      Notices notices;
      {
        const os::SpinGuard lock(lock_);
        if (telling_) return;  // the thread that tells will find the rest
        if (!due_.exchange(false, std::memory_order_acq_rel)) return;
        notices = std::exchange(notices_, {});
        telling_ = true;
      }
      tell(notices);
      notices = {};  // perhaps the last one to hold the connection
      const os::SpinGuard lock(lock_);
      telling_ = false;
    }
  }

 private:
  os::SpinLock lock_;
  Notices notices_ WEFT_GUARDED_BY(lock_);
  bool telling_ WEFT_GUARDED_BY(lock_) = false;
  std::atomic<bool> due_{false};
};

}  // namespace weft::verbs
