// The word of a lane: who may touch the connection, and what is to be done there.
//
// One 32-bit word, changed by read-modify-writes only, all sequentially consistent. Each function
// below is one step: what it makes of the word, and what the caller does next. They are pure, so
// that tests/model explores every interleaving of them.
//
//   Closed   no connection: nothing to do, signals are void
//   Asleep   the peer has been told that nobody looks; epoll reports what comes
//   Ready    the shard runs the lane at its next pass
//   Running  one thread has it: a pass, a post, or control (modify, disconnect, a timer)
//
// What always holds: Asleep has no other bit but Wanted, and beside that what a post has noted for
// the control that is about to enter. Ready is in the shard's list, or that control has been left
// the work (Wanted and Signaled). Running has one holder.
//
// docs/threads.md has these steps as a table and as a picture, generated from the functions below.
#pragma once

#include <cstdint>

namespace weft::progress {

using Word = std::uint32_t;

inline constexpr Word kStateMask = 3;
inline constexpr Word kClosed = 0;
inline constexpr Word kAsleep = 1;
inline constexpr Word kReady = 2;
inline constexpr Word kRunning = 3;

inline constexpr Word kInList = 1U << 2U;    // linked in the shard's list, or about to be
inline constexpr Word kSignaled = 1U << 3U;  // something came while the lane was not asleep
inline constexpr Word kWanted = 1U << 4U;    // control waits for it (futex)
// News for the lane.
inline constexpr Word kPosted = 1U << 5U;    // requests that nobody has sent yet
inline constexpr Word kIn = 1U << 6U;        // there may be something to receive
inline constexpr Word kRoom = 1U << 7U;      // there may be room to send
inline constexpr Word kEnd = 1U << 8U;       // the end of the stream was reported
inline constexpr Word kReported = 1U << 9U;  // the socket beside a ring was reported
inline constexpr Word kNews = kPosted | kIn | kRoom | kEnd | kReported;

[[nodiscard]] constexpr Word state_of(Word w) noexcept { return w & kStateMask; }
[[nodiscard]] constexpr Word with_state(Word w, Word state) noexcept {
  return (w & ~kStateMask) | state;
}

enum class Next : std::uint8_t {
  kNothing,  // the step is all
  kPush,     // this step has set InList: link the lane
  kEnter,    // the lane is the caller's
  kLeft,     // somebody else does it, who has been told by this step
  kWait,     // control: sleep while the word stays as it is
  kAgain,    // end: something was posted meanwhile; send it, then end again
  kVoid,     // there is no connection
};

// Holds always, as above.
[[nodiscard]] constexpr bool is_sound(Word w) noexcept {
  const bool wanted = (w & kWanted) != 0;
  const bool listed = (w & kInList) != 0;
  const bool signaled = (w & kSignaled) != 0;
  switch (state_of(w)) {
    case kClosed: return !signaled && (wanted || (w & kNews) == 0);
    case kAsleep: return !signaled && !listed && (wanted || (w & kNews) == 0);
    case kReady: return listed || (wanted && signaled);
    default: return true;
  }
}

struct Step {
  Word word;
  Next next;
};

// Something came: an event, a time limit, a receive that was awaited. The caller does not run it.
[[nodiscard]] constexpr Step signal_step(Word w, Word news) noexcept {
  switch (state_of(w)) {
    case kClosed: return {w, Next::kVoid};
    case kAsleep:
      if ((w & kWanted) != 0) return {with_state(w, kReady) | kSignaled | news, Next::kLeft};
      return {with_state(w, kReady) | kInList | news, Next::kPush};
    default: return {w | kSignaled | news, Next::kLeft};
  }
}

// A pass has unlinked the lane.
[[nodiscard]] constexpr Step pop_step(Word w) noexcept {
  w &= ~kInList;
  switch (state_of(w)) {
    case kReady:
      // Whoever waits for it goes first, and leaves the rest to the next pass.
      if ((w & kWanted) != 0) return {w | kSignaled, Next::kLeft};
      return {with_state(w, kRunning) & ~(kSignaled | kNews), Next::kEnter};
    case kRunning: return {w | kSignaled, Next::kLeft};
    default: return {w, Next::kVoid};
  }
}

// A thread with something of its own to do there: it has posted, or a receive was awaited. It does
// not wait: `news` tell the holder, or the control that is about to have the lane.
[[nodiscard]] constexpr Step post_step(Word w, Word news) noexcept {
  if (state_of(w) == kRunning || (w & kWanted) != 0) return {w | news, Next::kLeft};
  return {with_state(w, kRunning) & ~kPosted, Next::kEnter};
}

// As post_step(), for a caller who leaves it at that if the lane is taken.
[[nodiscard]] constexpr Step try_step(Word w) noexcept {
  if (state_of(w) == kRunning || (w & kWanted) != 0) return {w, Next::kLeft};
  return {with_state(w, kRunning), Next::kEnter};
}

// Control: what the caller must see done. Waits for the holder.
[[nodiscard]] constexpr Step control_step(Word w) noexcept {
  if (state_of(w) == kRunning) return {w | kWanted, Next::kWait};
  return {with_state(w, kRunning) & ~kWanted, Next::kEnter};
}

// The end of a turn. kAsleep: nobody looks any more, REQUIRED that the peer has been told.
// kReady: to be run again. kClosed: the connection is over.
[[nodiscard]] constexpr Step end_step(Word w, Word to) noexcept {
  if ((w & kPosted) != 0) return {w & ~kPosted, Next::kAgain};
  if (to == kClosed) {
    return {with_state(w, kClosed) & (kStateMask | kInList | kWanted), Next::kNothing};
  }
  if (to == kAsleep && (w & ~kWanted) == kRunning) return {with_state(w, kAsleep), Next::kNothing};
  if ((w & kWanted) != 0) return {with_state(w, kReady) | kSignaled, Next::kNothing};
  if ((w & kInList) != 0) return {with_state(w, kReady), Next::kNothing};
  return {with_state(w, kReady) | kInList, Next::kPush};
}

}  // namespace weft::progress
