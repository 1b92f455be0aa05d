// Every order in which the writer and the reader of a socket channel can take their steps, each of
// which is one load, store, exchange or system call of src/sockets/socket_channel.cc. Searched
// completely, with both sides asleep in an epoll that tells of edges only, which is the sleep that
// needs most:
//
//   - no state is left in which both sleep and octets are under way, or room is not told of;
//   - under an epoll that tells of levels, no side wakes without end while the other stands still.
//
// The memory is sequentially consistent here. In socket_channel.cc fences make those steps so that
// need it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "explore.h"

namespace weft::sockets {
namespace {

constexpr int kRing = 4;    // octets of the ring
constexpr int kTotal = 7;   // octets to move: the ring fills and wraps
constexpr int kPiece = 3;   // octets of one copy at most
constexpr int kFiller = 4;  // octets of the large run that makes the pair unwritable
constexpr int kPair = 7;    // octets that the pair takes
// The kernel calls the pair writable, and tells a sleeping writer so, with no more octets in it.
constexpr int kWritable = 2;

enum class W : std::uint8_t {
  kLook,       // read how far the reader is
  kCopy,       // into the ring, and publish
  kWaits,      // does the reader wait for a signal?
  kTakeWait,   // exchange that for no
  kSignal,     // one octet into the pair
  kCount,      // count it
  kGiveBack,   // it did not fit: write that the reader waits still
  kFilled,     // has the pair been filled?
  kFillLarge,  // fill it
  kCountLarge,
  kFillSmall,
  kCountSmall,
  kSayFilled,   // write that it is
  kLookAgain,   // read how far the reader is once more
  kSleep,       // until the pair is writable
  kSendInside,  // blocking: sleep in a send into the pair
  kCountInside,
  kDone,
};

enum class R : std::uint8_t {
  kLook,       // read how far the writer is
  kCopy,       // out of the ring, and publish
  kFilled,     // has the writer filled the pair?
  kTakeFill,   // exchange that for no; read how many signals there were
  kGiveRoom,   // take all but one of them out of the pair
  kArmed,      // do we wait already?
  kStuck,      // arm(): has the writer filled the pair?
  kStale,      // ... how many signals have been sent?
  kPeekOld,    // ... none that is counted: how many are in the pair?
  kSayWait,    // ... write that we wait
  kDrainMost,  // ... take the old signals out, but for one
  kUnfill,     // ... and the filling with them
  kLookAgain,  // ... read how far the writer is once more
  kUnsay,      // ... there is something: write that we do not wait
  kDrain,      // ... there is nothing: take the last one out
  kPeek,       // is there a signal, and nothing in the ring?
  kPeekRing,
  kLate,       // do we wait? Then it is a late one
  kPeekMany,   // take_stale(): how many are there?
  kStillWait,  // ... do we wait still?
  kTakeStale,  // ... take so many
  kSleep,      // until the pair is readable
  kDone,
};

struct State {
  W w = W::kLook;
  R r = R::kLook;
  std::int8_t written = 0, read = 0;  // shared
  bool reader_waits = true, writer_waits = false;
  std::int8_t pair = 0;       // octets in it
  std::int8_t uncounted = 0;  // octets sent and not counted
  bool in_edge = false, out_edge = false;
  // The writer's own.
  std::int8_t seen_read = 0;
  // The reader's own.
  std::int8_t seen_written = 0;
  std::int8_t up_to = 0;  // signals to take, less those taken
  std::int8_t more = 0;   // signals besides the one that stands for unread octets
  bool stuck = false;
  bool had_some = false;  // this call has read octets already
  auto operator<=>(const State&) const = default;
};

// The protocol under test, and broken ones to show that the search finds such things.
struct Variant {
  bool edges = true;              // else levels
  bool blocking = false;          // the writer sleeps inside send()
  bool refills = true;            // a pair that turned out writable is filled again
  bool counts_first = false;      // signals are counted before they are sent
  bool looks_again = true;        // arm() reads the writer's position once more
  bool leaves_one = true;         // arm() takes the last old signal only with an empty ring
  bool gives_back = true;         // a signal that did not fit leaves the reader waiting
  bool peeks_old = true;          // arm() takes old signals that are not counted yet
  bool late_ones_checked = true;  // take_stale() looks whether we wait still
};

using States = std::vector<State>;

void put(State& s, int octets) {
  if (s.pair + octets > kPair) return;  // a full pair takes nothing
  s.pair = static_cast<std::int8_t>(s.pair + octets);
  s.uncounted = static_cast<std::int8_t>(s.uncounted + octets);
  s.in_edge = true;
}

void take(State& s, int octets) {
  const int n = std::clamp<int>(octets, 0, s.pair);
  s.pair = static_cast<std::int8_t>(s.pair - n);
  s.up_to = static_cast<std::int8_t>(s.up_to - n);
  if (n > 0 && s.pair <= kWritable) s.out_edge = true;
}

// Signals counted and not taken, as the reader finds them.
int counted(const State& s) { return s.pair - s.uncounted; }

W after_write(const State& s) { return s.written == kTotal ? W::kDone : W::kLook; }

void send_step(State& n, int octets, W count) {
  put(n, octets);
  n.w = count;
}

void step_writer_full(const State& s, const Variant& v, State n, States& out) {
  switch (s.w) {
    case W::kFilled:
      n.w = !s.writer_waits || (v.refills && s.pair <= kWritable) ? W::kFillLarge : W::kLookAgain;
      break;
    case W::kFillLarge: send_step(n, kFiller, W::kCountLarge); break;
    case W::kCountLarge: n.uncounted = 0, n.w = W::kFillSmall; break;
    case W::kFillSmall: send_step(n, 1, W::kCountSmall); break;
    case W::kCountSmall: n.uncounted = 0, n.w = W::kSayFilled; break;
    case W::kSayFilled: n.writer_waits = true, n.w = W::kLookAgain; break;
    case W::kLookAgain:
      n.w = s.read != s.seen_read ? W::kLook : v.blocking ? W::kSendInside : W::kSleep;
      break;
    case W::kSleep:
      // An edge is told only as long as it holds.
      if (v.edges && !s.out_edge) return;
      n.out_edge = false;
      if (s.pair <= kWritable) n.w = W::kLook;
      if (n == s) return;
      break;
    case W::kSendInside:
      if (s.pair >= kPair) return;
      send_step(n, 1, W::kCountInside);
      break;
    default: n.uncounted = 0, n.w = W::kLook; break;
  }
  out.push_back(n);
}

void step_writer(const State& s, const Variant& v, States& out) {
  State n = s;
  switch (s.w) {
    case W::kLook:
      n.seen_read = s.read;
      n.w = s.written - s.read < kRing ? W::kCopy : W::kFilled;
      break;
    case W::kCopy: {
      const int most = std::min({kRing - (s.written - s.seen_read), kPiece, kTotal - s.written});
      for (int piece = 1; piece <= most; ++piece) {
        n.written = static_cast<std::int8_t>(s.written + piece);
        n.w = W::kWaits;
        out.push_back(n);
      }
      return;
    }
    case W::kWaits: n.w = s.reader_waits ? W::kTakeWait : after_write(s); break;
    case W::kTakeWait:
      n.reader_waits = false;
      if (v.counts_first) --n.uncounted;
      n.w = W::kSignal;
      break;
    case W::kSignal:
      send_step(n, 1, W::kCount);
      if (s.pair == kPair && v.gives_back) n.w = W::kGiveBack;
      break;
    case W::kGiveBack: n.reader_waits = true, n.w = after_write(s); break;
    case W::kCount: n.uncounted = 0, n.w = after_write(s); break;
    case W::kDone: return;
    default: step_writer_full(s, v, n, out); return;
  }
  out.push_back(n);
}

void step_reader_arms(const State& s, const Variant& v, State n, States& out) {
  // With octets already read, the program may sleep, or ask once more.
  const auto armed = [&](State next) {
    next.r = R::kPeek;
    out.push_back(next);
    if (s.had_some) {
      next.r = R::kSleep;
      out.push_back(next);
    }
  };
  switch (s.r) {
    case R::kArmed:
      if (s.reader_waits) return armed(n);
      n.r = R::kStuck;
      break;
    case R::kStuck: n.stuck = s.writer_waits, n.r = R::kStale; break;
    case R::kStale:
      n.up_to = static_cast<std::int8_t>(counted(s));
      n.r = v.peeks_old && counted(s) < 1 + s.more ? R::kPeekOld : R::kSayWait;
      n.more = 0;
      break;
    case R::kPeekOld: n.up_to = s.pair, n.r = R::kSayWait; break;
    case R::kSayWait: n.reader_waits = true, n.r = R::kDrainMost; break;
    case R::kUnsay:
      n.more = s.reader_waits ? 0 : 1;
      n.reader_waits = false;
      n.up_to = 0;
      n.r = R::kLook;
      out.push_back(n);
      // A program that goes by levels may sleep with octets unread.
      if (!v.edges && s.had_some) n.r = R::kSleep;
      break;
    case R::kDrainMost: take(n, s.up_to - (v.leaves_one ? 1 : 0)), n.r = R::kUnfill; break;
    case R::kUnfill:
      if (s.stuck) n.writer_waits = false;
      n.stuck = false;
      n.r = v.looks_again ? R::kLookAgain : R::kDrain;
      break;
    case R::kLookAgain: n.r = s.written != s.read ? R::kUnsay : R::kDrain; break;
    default:
      take(n, s.up_to);
      n.up_to = 0;
      return armed(n);
  }
  out.push_back(n);
}

void step_reader_late(const State& s, const Variant& v, State n, States& out) {
  switch (s.r) {
    case R::kPeek: n.r = s.pair > 0 ? R::kPeekRing : R::kSleep; break;
    case R::kPeekRing: n.r = s.written != s.read ? R::kLook : R::kLate; break;
    case R::kLate: n.r = s.reader_waits ? R::kPeekMany : R::kArmed; break;
    case R::kPeekMany:
      n.up_to = s.pair;
      n.r = v.late_ones_checked ? R::kStillWait : R::kTakeStale;
      break;
    case R::kStillWait: n.r = s.reader_waits ? R::kTakeStale : R::kSleep; break;
    case R::kTakeStale:
      take(n, s.up_to);
      n.up_to = 0;
      n.r = R::kSleep;
      break;
    default:
      if (v.edges && !s.in_edge) return;
      n.in_edge = false;
      if (s.pair > 0) n.r = R::kLook, n.had_some = false;
      if (n == s) return;
      break;
  }
  out.push_back(n);
}

void step_reader(const State& s, const Variant& v, States& out) {
  State n = s;
  switch (s.r) {
    case R::kLook:
      n.seen_written = s.written;
      n.r = s.written != s.read ? R::kCopy : R::kArmed;
      break;
    case R::kCopy:
      for (int piece = 1; piece <= std::min(s.seen_written - s.read, kPiece); ++piece) {
        n.read = static_cast<std::int8_t>(s.read + piece);
        n.had_some = true;
        n.r = R::kFilled;
        out.push_back(n);
      }
      return;
    case R::kFilled: {
      const bool later = s.written - s.read > kRing - kRing / 4;
      const R next = s.read == kTotal ? R::kDone : R::kLook;
      n.r = s.writer_waits && !later ? R::kTakeFill : next;
      out.push_back(n);
      if (!v.edges && n.r == R::kLook) n.r = R::kSleep;  // as above
      break;
    }
    case R::kTakeFill:
      n.up_to = static_cast<std::int8_t>(s.writer_waits ? counted(s) - 1 : 0);
      n.writer_waits = false;
      n.r = R::kGiveRoom;
      break;
    case R::kGiveRoom:
      take(n, s.up_to);
      n.up_to = 0;
      n.r = s.read == kTotal ? R::kDone : R::kLook;
      break;
    case R::kPeek:
    case R::kPeekRing:
    case R::kLate:
    case R::kPeekMany:
    case R::kStillWait:
    case R::kTakeStale:
    case R::kSleep: step_reader_late(s, v, n, out); return;
    case R::kDone: return;
    default: step_reader_arms(s, v, n, out); return;
  }
  out.push_back(n);
}

// One side alone comes back to where it was: it turns without end, and nobody does anything.
template <class Step>
bool turns(State s, const Variant& v, Step step) {
  for (std::set<State> seen; seen.insert(s).second;) {
    States next;
    step(s, v, next);
    if (next.empty()) return false;
    s = next.front();
  }
  return true;
}

struct Found {
  std::size_t states = 0;
  std::size_t ends = 0;     // all octets have been moved
  std::size_t stuck = 0;    // nobody can take a step, and octets are left
  std::size_t turning = 0;  // a side that turns without end
};

Found search(const Variant& variant) {
  Found found;
  const auto next = [&](const State& s, States& out) {
    step_writer(s, variant, out);
    step_reader(s, variant, out);
  };
  found.states = test::explore(State{}, next, [&](const State& s, bool end) {
    if (end) ++(s.w == W::kDone && s.r == R::kDone ? found.ends : found.stuck);
    if (!variant.edges && s.w == W::kSleep && turns(s, variant, step_writer)) ++found.turning;
    if (!variant.edges && s.r == R::kSleep && turns(s, variant, step_reader)) ++found.turning;
  });
  return found;
}

TEST(SocketChannelModel, NoOrderOfStepsLosesAnEdge) {
  const Found found = search({});
  EXPECT_GT(found.states, 1000U);
  EXPECT_GT(found.ends, 0U);
  EXPECT_EQ(found.stuck, 0U);
}

TEST(SocketChannelModel, AWriterThatSleepsInItsCallIsWoken) {
  const Found found = search({.blocking = true});
  EXPECT_GT(found.ends, 0U);
  EXPECT_EQ(found.stuck, 0U);
}

TEST(SocketChannelModel, LevelsNeitherLoseNorTurn) {
  const Found found = search({.edges = false});
  EXPECT_GT(found.ends, 0U);
  EXPECT_EQ(found.stuck, 0U);
  EXPECT_EQ(found.turning, 0U);
}

TEST(SocketChannelModel, AWriterThatDoesNotFillAgainTurns) {
  EXPECT_GT(search({.edges = false, .refills = false}).turning, 0U);
}

TEST(SocketChannelModel, SignalsThatAreCountedTooEarlyAreLost) {
  EXPECT_GT(search({.counts_first = true}).stuck, 0U) << "the search does not find what it is for";
}

TEST(SocketChannelModel, WithoutTheSecondLookThereIsALostSignal) {
  EXPECT_GT(search({.looks_again = false}).stuck, 0U);
}

// A full pair takes no signal, and what fills it may be taken out this very moment.
TEST(SocketChannelModel, ASignalThatDidNotFitIsLostUnlessAnOldOneStays) {
  EXPECT_GT(search({.edges = false, .leaves_one = false}).stuck, 0U);
}

TEST(SocketChannelModel, ASignalThatDidNotFitIsLostUnlessTheReaderWaitsOn) {
  EXPECT_GT(search({.blocking = true, .gives_back = false}).stuck, 0U);
}

TEST(SocketChannelModel, ALateSignalIsTakenOnlyWhileTheReaderWaits) {
  EXPECT_GT(search({.late_ones_checked = false}).stuck, 0U);
}

}  // namespace
}  // namespace weft::sockets
