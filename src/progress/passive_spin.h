// Whether the background's thread looks on for a moment after a message, before it sleeps.
//
// Programs that watch memory instead of a CQ wait for this thread each time. It looks on as long as
// nobody else wants the CPU (os/cores.h). Where the system does not say, yields do: one that takes
// long has run somebody. Then it pauses, longer each time.
//
// One thread's.
#pragma once

#include "base/time.h"
#include "progress/host.h"

namespace weft::progress {

class PassiveSpin {
 public:
  [[nodiscard]] bool may_begin(const ProgressHost& host);
  // Gives way. False: somebody else wants the core, so stop.
  [[nodiscard]] bool yield(const ProgressHost& host);
  void note_success() noexcept { pause_ = kPauseMin; }

 private:
  [[nodiscard]] bool cores_are_enough(const ProgressHost& host);

  static constexpr Duration kPauseMin{1'000'000};
  Instant cores_asked_at_;
  bool cores_enough_ = false;
  Instant not_before_;
  Duration pause_{kPauseMin};
};

}  // namespace weft::progress
