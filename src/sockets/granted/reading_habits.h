// How the program has read from a connection so far: whether a read looks into the ring before it
// sleeps, which questions to the kernel it leaves out, and whether the window stays open between
// calls.
//
// It touches neither octets nor windows: its callers do as it says.
//
// Threads: any that reads, or that waits for octets. All of it are hints: one that another thread
// has changed meanwhile costs time, and nothing else.
#pragma once

#include <atomic>
#include <cstdint>

#include "sockets/grant/grant_words.h"
#include "sockets/granted/in_vain.h"
#include "sockets/spin.h"

namespace weft::sockets::granted {

class ReadingHabits {
 public:
  // Reads in a row that each followed a wait which was seen.
  static constexpr std::uint32_t kStreak = 32;

  // REQUIRES: no call knows the lane.
  void begin_again();

  // Whether the window stays open between calls: the program reads after waits that are seen, so it
  // will look here before it sleeps.
  [[nodiscard]] bool keeps_window() const {
    return streak_.load(std::memory_order_relaxed) >= kStreak;
  }

  // A wait of `thread` tells the program of octets; `written` is the ring's kWritten.
  void note_named(std::uint32_t thread, std::uint64_t written) {
    named_by_.store(thread, std::memory_order_relaxed);
    reported_.store(written, std::memory_order_relaxed);
  }
  // Whether a wait of some thread has told of octets that were not read yet.
  [[nodiscard]] bool is_named() const { return named_by_.load(std::memory_order_relaxed) != 0; }
  // Whether a wait has told of the octets before `written`.
  [[nodiscard]] bool has_reported(std::uint64_t written) const {
    return reported_.load() == written;
  }
  // The kernel told of octets by an edge, and will not again: it is asked until it has no more.
  void note_kernels_edge() { kernels_edge_.store(true); }
  [[nodiscard]] bool take_kernels_edge() {
    return kernels_edge_.load() && kernels_edge_.exchange(false);
  }
  // There is a wait that does not look into the ring.
  void note_unwatched() { streak_.store(0, std::memory_order_relaxed); }

  // A read that is over. `got`: as the reader's result; `asked`: octets that there was room for;
  // `waits`: the call is a wait itself. What is to become of the window.
  enum class Window : std::uint8_t { kStays, kOpens, kCloses };
  [[nodiscard]] Window note_read(std::uint32_t thread, std::int64_t got, std::uint64_t asked,
                                 bool waits);
  // ... and one that might have waited: whether it offered the ring if it had to, whether it looked
  // there before it slept, and whether it got its octets by it. One that found octets in TCP at
  // once has offered nothing, and says nothing.
  void note_wait(bool offered, bool looked, bool by_ring) {
    if (by_ring || looked || !offered) waits_.note(by_ring);
  }

  // Whether the program asks again and again, without a wait that names the lane.
  [[nodiscard]] bool polls() const {
    return keeps_window() && !is_named() && !kernels_edge_.load();
  }
  // Whether this look into the kernel is left out, where that may be.
  [[nodiscard]] bool leaves_out() {
    return left_out_.fetch_add(1, std::memory_order_relaxed) % kLeaveOut != 0;
  }
  // Reads that wait offered the ring, and got nothing by it.
  [[nodiscard]] const InVain& waits() const { return waits_; }
  // How long a reader looks before it sleeps.
  [[nodiscard]] SpinBudget& look() { return look_; }

 private:
  std::atomic<std::uint32_t> named_by_{0};  // the thread whose wait has told of octets, 0: none
  std::atomic<std::uint32_t> streak_{0};
  std::atomic<std::uint64_t> reported_{0};  // as kWritten when a wait told of the lane last
  std::atomic<bool> blocked_{false};        // the last read found nothing
  std::atomic<bool> kernels_edge_{false};
  std::atomic<std::uint32_t> left_out_{0};
  InVain waits_;
  SpinBudget look_{};
};

// Here, since each read has it.
inline ReadingHabits::Window ReadingHabits::note_read(std::uint32_t thread, std::int64_t got,
                                                      std::uint64_t asked, bool waits) {
  const bool blocked = got == kGrantWouldBlock;
  const bool blocked_before = blocked_.load(std::memory_order_relaxed);
  if (blocked != blocked_before) blocked_.store(blocked, std::memory_order_relaxed);
  const bool named = named_by_.load(std::memory_order_relaxed) == thread;
  if (named && (got < 0 || static_cast<std::uint64_t>(got) < asked)) {
    named_by_.store(0, std::memory_order_relaxed);
  }
  // One that asks again and again without a wait looks as often as one that waits.
  if (waits || named || (blocked && blocked_before)) {
    if (!keeps_window()) streak_.fetch_add(1, std::memory_order_relaxed);
  } else if (!blocked && !blocked_before) {
    const bool kept = keeps_window();
    streak_.store(0, std::memory_order_relaxed);
    if (kept) return Window::kCloses;
  }
  return !waits && keeps_window() ? Window::kOpens : Window::kStays;
}

}  // namespace weft::sockets::granted
