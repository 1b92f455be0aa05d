// How well sending by the ring of a connection has gone so far: how long a writer looks for room,
// whether a large send waits for TCP to run empty, and until when the ring is left alone.
//
// Threads: any that sends, and the spiller. All of it are hints, as in reading_habits.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "sockets/grant/grant_words.h"
#include "sockets/granted/in_vain.h"
#include "sockets/spin.h"

namespace weft::sockets::granted {

class WritingHabits {
 public:
  // REQUIRES: no call knows the lane.
  void begin_again();

  // Looks for room until `holds`, or for as long as that has been worth it.
  template <class Holds>
  [[nodiscard]] bool look_for_room(Holds holds) {
    return spin(room_, holds);
  }
  // Looks for an empty TCP, where that is worth it, or if `sure`.
  template <class Holds>
  void look_for_drain(bool sure, Holds holds) {
    drains_.note((sure || drains_.worth_it()) && spin(drain_, holds));
  }

  // The ring was of no use: it is left alone for a while, for longer each time. Once in a while is
  // forgotten.
  void ban_ring(std::int64_t now);
  // `clock()` is now, in nanoseconds.
  template <class Clock>
  [[nodiscard]] bool is_banned(Clock clock) const {
    const std::int64_t until = ban_until_.load();
    return until != 0 && clock() < until;
  }

  // Nothing more can be sent, also of what is owed: the connection has ended.
  void note_over() { over_ = true; }
  [[nodiscard]] bool is_over() const { return over_.load(std::memory_order_relaxed); }

  // The spiller's tick has found this in kTake, and octets in the ring if `holds`. Whether they lay
  // there at its last tick, and the reader has not moved since. For the spiller's thread alone.
  [[nodiscard]] bool rests(std::uint64_t take, bool holds) {
    const std::uint64_t before = take_seen_.exchange(holds ? take : kTaken);
    return holds && before == take;
  }

 private:
  SpinBudget room_{};   // of a writer before it takes back
  SpinBudget drain_{};  // of a writer that waits for TCP to run empty
  InVain drains_;       // such waits that ended with octets in TCP
  std::atomic<std::int64_t> ban_until_{0};
  std::atomic<std::int64_t> ban_ns_{0};
  std::atomic<std::uint64_t> take_seen_{0};
  std::atomic<bool> over_{false};
};

}  // namespace weft::sockets::granted
