// Counts how often in a row something was of no use, by which callers leave it out most of the
// time.
//
// Threads: any; of counts that two threads write at once, one may be lost.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::sockets::granted {

// Something that is left out is done once in so many times.
inline constexpr std::uint32_t kLeaveOut = 64;

class InVain {
 public:
  void begin_again() { count_.store(0, std::memory_order_relaxed); }
  void note(bool of_use) { count_.store(of_use ? 0 : count() + 1, std::memory_order_relaxed); }

  // Whether it was of no use so often that it is left out, but for trials.
  [[nodiscard]] bool often() const { return count() >= kOften; }
  // Whether to do it now.
  [[nodiscard]] bool worth_it() const { return !often() || count() % kLeaveOut == 0; }

 private:
  static constexpr std::uint32_t kOften = 32;
  [[nodiscard]] std::uint32_t count() const { return count_.load(std::memory_order_relaxed); }

  std::atomic<std::uint32_t> count_{0};
};

}  // namespace weft::sockets::granted
