// The part of a process in `weft run --faults`: the rules of the file decide, and each of their
// effects is said on stderr.
//
//   WEFT_FAULTS_FILE   the text of the file, as `weft run` has read it
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check/module/frames.h"
#include "check/observer.h"
#include "faults/fault_player.h"
#include "os/clock.h"

namespace weft::check {

// One thread at a time, but for start().
class FaultPlay {
 public:
  using Action = faults::FaultPlayer::Action;

  // As the environment wants it; null: there are no rules for this process.
  static std::unique_ptr<FaultPlay> open(const Hands& hands);

  FaultPlay(faults::FaultPlayer player, const Hands& hands);

  // A thread calls `act` for the effects that come at a time. Once.
  void start(std::function<void(const Action&)> act) const;
  // Has such an effect happen.
  void act(const Action& action);

  // The errno with which this call of the program fails, or 0. `frames` is asked where it does.
  template <class Frames>
  [[nodiscard]] int call(const char* name, Frames frames) {
    const auto struck = player_.call(name, now());
    if (!struck) return 0;
    say(*struck, name, frames());
    return struck->error;
  }
  void made(const Made& object);
  void destroyed(const void* handle);
  // The queue pair was moved to RESET: it begins anew.
  void emptied(const void* handle);
  [[nodiscard]] Injected completes(std::uint32_t qp, bool receive);
  [[nodiscard]] InjectedCm fetches(int cm_event);

 private:
  struct Known {
    const void* handle;  // null: it is destroyed
    Kind kind;
    std::uint32_t number;
    const void* send_cq;
    const void* receive_cq;
  };
  [[nodiscard]] std::chrono::nanoseconds now() const;
  void say(const faults::Struck& struck, const char* call, const std::vector<Frame>& frames);
  // Those that wait for another rule.
  void act_if_due();
  void raise(const faults::FaultRule& rule);
  void disconnect(const faults::FaultRule& rule);
  void break_users(const void* cq);  // null: all queue pairs
  [[nodiscard]] const Known* find(const faults::FaultRule& rule) const;

  const Hands hands_;
  faults::FaultPlayer player_;
  const std::int64_t began_ns_ = os::monotonic_ns();
  std::vector<Known> known_;        // queue pairs, CQs and SRQs, as they were made
  std::set<std::uint64_t> broken_;  // queues of queue pairs with a completion that failed
};

}  // namespace weft::check
