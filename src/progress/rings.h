// The rings of shared memory of a device: how many there are, since each holds memory, and the
// memory of those that outlives their connections for a moment.
//
// To make the memory of a ring costs more than to set a connection up. So it is kept for kKept when
// a connection ends in good order, and serves the next one between the same two processes. Both
// name it by the proof of its last hand-over, which nobody else has; the hand-over of the next ring
// looks anew at who they are. Any thread.
#pragma once

#include <weft/address.h>
#include <weft/limits.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "base/time.h"
#include "io/engine.h"
#include "os/lock.h"
#include "shm/ring.h"

namespace weft::progress {

class Rings final : public io::Handler {
 public:
  static constexpr Duration kKept{1'000'000'000};

  struct Kept {
    shm::SpareRing ring;
    std::uint64_t key = 0;   // the proof
    bool initiator = false;  // of the connection it was of; so it is of the next
    SocketAddress peer;      // where an initiator was connected to
    Instant until;
  };

  // Kept memory is given back on the thread of `engine`. `self` keeps the device.
  // REQUIRES: before all below.
  void start(io::Engine& engine, std::weak_ptr<io::Handler> self) noexcept {
    assert(engine_ == nullptr);
    engine_ = &engine;
    self_ = std::move(self);
  }

  // Room for one more ring in use, which give() returns. False: stay on TCP.
  [[nodiscard]] bool take() noexcept {
    if (count_.fetch_add(1, std::memory_order_relaxed) < limits::kRings) return true;
    give();
    return false;
  }
  void give() noexcept {
    [[maybe_unused]] const std::uint32_t before = count_.fetch_sub(1, std::memory_order_relaxed);
    assert(before != 0);
  }
  [[nodiscard]] std::uint32_t now() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }

  // Sets `until`. Gives the memory back if as much is kept as may be.
  void keep(Kept kept);
  // For an initiator: what was kept last of a connection to `peer`.
  [[nodiscard]] std::optional<Kept> take_kept_of(const SocketAddress& peer);
  // For a responder: what the initiator names.
  [[nodiscard]] std::optional<shm::SpareRing> take_kept(std::uint64_t key);

  void on_timer(io::TimerId id) override;  // gives back what has been kept for long enough

 private:
  [[nodiscard]] std::list<Kept> take_first(const std::function<bool(const Kept&)>& fits);

  io::Engine* engine_ = nullptr;
  std::weak_ptr<io::Handler> self_;
  std::atomic<std::uint32_t> count_{0};
  os::Mutex mutex_;
  std::list<Kept> kept_ WEFT_GUARDED_BY(mutex_);  // the latest first
  bool timer_set_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::progress
