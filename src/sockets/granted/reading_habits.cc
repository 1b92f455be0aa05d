#include "sockets/granted/reading_habits.h"

#include "sockets/grant/grant_words.h"

namespace weft::sockets::granted {

void ReadingHabits::begin_again() {
  named_by_ = streak_ = 0;
  reported_ = 0;
  blocked_ = kernels_edge_ = false;
  left_out_ = 0;
  waits_.begin_again();
  begin_spin(look_);
}

ReadingHabits::Window ReadingHabits::note_read(std::uint32_t thread, std::int64_t got,
                                               std::uint64_t asked, bool waits) {
  const bool blocked = got == kGrantWouldBlock;
  const bool blocked_before = blocked_.exchange(blocked, std::memory_order_relaxed);
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
