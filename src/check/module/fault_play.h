// The part of a process in `weft run --faults`: what the rules of the file decide is said on
// stderr, and done here if it is a signal.
//
//   WEFT_FAULTS_FILE   the text of the file, as `weft run` has read it
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "check/module/frames.h"
#include "check/observer.h"
#include "faults/fault_player.h"
#include "os/clock.h"

namespace weft::check {

// One thread at a time.
class FaultPlay {
 public:
  // As the environment wants it; null: there are no rules for this process.
  static std::unique_ptr<FaultPlay> open();

  explicit FaultPlay(faults::FaultPlayer player);

  // The errno with which this call of the program fails, or 0. `frames` is asked where it does.
  template <class Frames>
  [[nodiscard]] int call(const char* name, Frames frames) {
    const auto struck = player_.call(name, now());
    if (!struck) return 0;
    say(*struck, name, frames());
    return struck->error;
  }
  void made_qp(const void* handle, std::uint32_t number);
  // The queue pair was moved to RESET: it begins anew.
  void emptied(const void* handle);
  [[nodiscard]] Injected completes(std::uint32_t qp, bool receive);

 private:
  [[nodiscard]] std::chrono::nanoseconds now() const;
  void say(const faults::Struck& struck, const char* call, const std::vector<Frame>& frames);
  // Those of signals that wait for another rule.
  void signal_if_due();
  void signal_later() const;

  faults::FaultPlayer player_;
  const std::int64_t began_ns_ = os::monotonic_ns();
  std::map<const void*, std::uint32_t> numbers_;  // of queue pairs
  std::set<std::uint64_t> broken_;  // queues of queue pairs with a completion that failed
};

}  // namespace weft::check
