// The background thread's watch over connections that callers have adopted.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "io/engine.h"

namespace weft::verbs {

class QueuePairImpl;

// While a caller polls, it drives its connections and the background thread keeps its hands off
// their sockets. This ticker looks, about once a millisecond, whether the callers are still at it:
// a connection not driven since the last tick is taken back, a doorbell left unrung is rung. With
// nothing adopted, or with all adopted connections under sleepers that wake by themselves, it
// stops: no CPU when idle.
//
// Threads: any.
class Progress final : public io::Ticker {
 public:
  explicit Progress(io::Engine& engine) : engine_(engine) {}

  void watch(std::shared_ptr<QueuePairImpl> qp);
  // A sleeper has left, or a doorbell was deferred: ticks are needed (again). Cheap when they go
  // on.
  void wake() { engine_.activate(this); }

  bool on_tick(Instant now) override;

 private:
  // How many ticks without any progress before sleepers are left to themselves.
  static constexpr std::uint32_t kQuietTicks = 20;

  io::Engine& engine_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<QueuePairImpl>> watched_;
  std::vector<std::shared_ptr<QueuePairImpl>> round_;  // the engine thread's
  std::uint32_t quiet_ = 0;
};

}  // namespace weft::verbs
