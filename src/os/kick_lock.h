// A lock that nobody waits for. A thread that can't have it leaves a kick in the lock word; the
// holder can't leave without seeing it, and then does the work of the one who kicked.
//
// Why one word: a flag beside a lock needs the holder to look at the flag after it has let go, at
// every place that lets go. Here a leave that would lose a kick fails.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "os/annotations.h"
#include "os/lock.h"

namespace weft::os {

enum class KickWord : std::uint8_t {
  kFree,
  kHeld,
  kKicked,  // held, and the holder has to do one more pass before it leaves
};

// The word that each step makes, apart from how it is stored: tests/model explores these.
struct KickStep {
  KickWord next;
  bool done;  // entered, or left
};
[[nodiscard]] constexpr KickStep kick_try_enter(KickWord w) noexcept {
  if (w == KickWord::kFree) return {KickWord::kHeld, true};
  return {w, false};
}
[[nodiscard]] constexpr KickStep kick_enter_or_kick(KickWord w) noexcept {
  if (w == KickWord::kFree) return {KickWord::kHeld, true};
  return {KickWord::kKicked, false};
}
[[nodiscard]] constexpr KickStep kick_if_held(KickWord w) noexcept {
  if (w == KickWord::kFree) return {w, false};
  return {KickWord::kKicked, true};
}
[[nodiscard]] constexpr KickStep kick_leave(KickWord w) noexcept {
  if (w == KickWord::kKicked) return {KickWord::kHeld, false};
  return {KickWord::kFree, true};
}

class WEFT_CAPABILITY("kick lock") KickLock {
 public:
  // False: somebody holds it, and nothing has changed.
  [[nodiscard]] bool try_enter() noexcept WEFT_TRY_ACQUIRE(true) {
    return word_.load(std::memory_order_relaxed) == KickWord::kFree && apply(kick_try_enter);
  }
  // False: the holder will do one more pass, which sees all that the caller has written.
  [[nodiscard]] bool enter_or_kick() noexcept WEFT_TRY_ACQUIRE(true) {
    return apply(kick_enter_or_kick);
  }
  // True: there is a holder, who will do one more pass. Never enters.
  [[nodiscard]] bool kick_if_held() noexcept { return apply(weft::os::kick_if_held); }
  // Leaves whatever comes. True: there was a kick, and the pass it asks for is still to be done.
  [[nodiscard]] bool leave_at_once() noexcept WEFT_RELEASE() WEFT_NOT_ANALYZED {
    return word_.exchange(KickWord::kFree, std::memory_order_seq_cst) == KickWord::kKicked;
  }
  // Waits: for what a caller must see done, and for what is rare. Never with a lock that a holder
  // may want.
  void enter() noexcept WEFT_ACQUIRE() {
    for (unsigned spins = 0; !try_enter(); ++spins) {
      if (spins < kSpins) {
        cpu_pause();
      } else {
        sched_yield();
      }
    }
  }
  // False: kicked, and still held. One more pass, then leave() again.
  [[nodiscard]] bool leave() noexcept WEFT_NOT_ANALYZED { return apply(kick_leave); }
  // For the analysis, beside leave(): the lock is given up, or taken by enter_or_kick().
  void left() const noexcept WEFT_RELEASE() WEFT_NOT_ANALYZED {}

  [[nodiscard]] bool held() const noexcept {
    return word_.load(std::memory_order_relaxed) != KickWord::kFree;
  }

 private:
  template <class Step>
  bool apply(Step step) noexcept {
    KickWord word = word_.load(std::memory_order_relaxed);
    while (true) {
      const KickStep to = step(word);
      // Also where the word stays as it is: the read-modify-write puts this step and those of
      // others in one order, which is what a kick relies on.
      if (word_.compare_exchange_weak(word, to.next, std::memory_order_seq_cst,
                                      std::memory_order_relaxed)) {
        return to.done;
      }
    }
  }

  static constexpr unsigned kSpins = 200;
  std::atomic<KickWord> word_{KickWord::kFree};
};

}  // namespace weft::os
