// Whether callers have left a shard whose owner they are: one of them was said to sleep elsewhere,
// and none has looked for a moment since. Any thread may doubt, the home thread settles it; a race
// costs one decision, no more.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace weft::progress {

class Doubt {
 public:
  // Long beside the pauses of a caller that polls.
  static constexpr Duration kMoment{200'000};

  // `looks`: how many there have been. The moment begins anew if there have been some since it was
  // raised last. True: settle() is wanted a moment later.
  [[nodiscard]] bool raise(std::uint32_t looks, Instant now) noexcept {
    const bool known =
        pending_.load(std::memory_order_seq_cst) && looks_.load(std::memory_order_relaxed) == looks;
    if (known) return false;
    looks_.store(looks, std::memory_order_relaxed);
    since_.store(now.ns, std::memory_order_release);
    return !pending_.exchange(true, std::memory_order_seq_cst);
  }
  // There is no timer: the next one asks again.
  void drop() noexcept { pending_.store(false, std::memory_order_seq_cst); }

  enum class Verdict : std::uint8_t {
    kThere,    // they have looked
    kGone,     // they have not
    kTooSoon,  // it was raised anew meanwhile: settle() is wanted a moment later
  };
  [[nodiscard]] Verdict settle(std::uint32_t looks, Instant now) noexcept {
    const std::uint32_t before = looks_.load(std::memory_order_relaxed);
    const Instant since{since_.load(std::memory_order_acquire)};
    if (now - since < kMoment) return Verdict::kTooSoon;
    drop();
    return looks == before ? Verdict::kGone : Verdict::kThere;
  }

 private:
  std::atomic<bool> pending_{false};
  std::atomic<std::uint32_t> looks_{0};
  std::atomic<std::int64_t> since_{0};  // as Instant
};

}  // namespace weft::progress
