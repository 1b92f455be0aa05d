// Every order in which a writer and a reader of a ring can take their steps, each of which is one
// load, store or exchange of ring.cc. Searched completely: no state is left in which both sleep
// and one of them has something to do.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "explore.h"
#include "shm/ring_wait.h"

namespace weft::shm {
namespace {

constexpr std::uint32_t kBytes = 4;    // of the buffer
constexpr std::uint32_t kTotal = 7;    // octets to move: the buffer fills and wraps
constexpr std::uint32_t kPerStep = 3;  // octets of one send() or receive() at most

// Where a side is in its program. The writer sends until all is sent; the reader reads until it has
// all. Whoever can't go on prepares to sleep, and sleeps.
enum class At : std::uint8_t {
  kLook,       // read the peer's position: is there room, or data?
  kMove,       // copy, and publish our position
  kCheckPeer,  // read what the peer waits for
  kWake,       // exchange it for nothing, and ring
  kSayWait,    // write what we wait for
  kLookAgain,  // read the peer's position once more
  kUnsay,      // there is something: write that we do not wait
  kSleep,      // until the bell rings
  kAwake,      // write that we do not wait; empty the bell
  kDone,
};

struct Side {
  At at = At::kLook;
  std::uint8_t seen = 0;  // the peer's position as last read
  std::uint8_t left = 0;  // reader: there and not read, as receive() knows it
  bool unseen = false;    // reader: has read, and not looked at the writer since
  auto operator<=>(const Side&) const = default;
};

struct State {
  Side writer, reader;
  std::uint8_t head = 0, tail = 0;                  // shared
  std::uint8_t writer_waits = 0, reader_waits = 0;  // shared
  bool writer_bell = false, reader_bell = false;    // rung and not emptied
  auto operator<=>(const State&) const = default;
};

// The protocol under test, and a broken one to show that the search finds such things.
struct Variant {
  bool look_again = true;
  bool looks_later = true;  // at the writer, where the reader has not looked at once
};

using States = std::vector<State>;

// One step of the writer; nothing if it can't take one.
void step_writer(const State& s, const Variant& v, States& out) {
  State n = s;
  Side& w = n.writer;
  switch (w.at) {
    case At::kLook:
      w.seen = s.tail;
      w.at = s.head - w.seen < static_cast<int>(kBytes) ? At::kMove : At::kSayWait;
      break;
    case At::kMove: {
      // Any number of octets that fit: send() is given pieces of any size.
      const std::uint32_t room = kBytes - (s.head - w.seen);
      const std::uint32_t most = std::min({room, kPerStep, kTotal - s.head});
      for (std::uint32_t piece = 1; piece <= most; ++piece) {
        State m = s;
        m.head = static_cast<std::uint8_t>(s.head + piece);
        m.writer.at = At::kCheckPeer;
        out.push_back(m);
      }
      return;
    }
    case At::kCheckPeer:
      w.at = must_wake_reader(s.reader_waits) ? At::kWake
             : s.head == kTotal               ? At::kDone
                                              : At::kLook;
      break;
    case At::kWake:
      if (s.reader_waits != 0) n.reader_bell = true;
      n.reader_waits = 0;
      w.at = s.head == kTotal ? At::kDone : At::kLook;
      break;
    case At::kSayWait:
      n.writer_waits = ring_wait::kData | ring_wait::kRoom;
      w.at = v.look_again ? At::kLookAgain : At::kSleep;
      break;
    case At::kLookAgain:
      w.at = ready_now(s.writer_waits | ring_wait::kRoom, 0, s.head - s.tail, kBytes) ? At::kUnsay
                                                                                      : At::kSleep;
      break;
    case At::kUnsay:
      n.writer_waits = 0;
      w.at = At::kLook;
      break;
    case At::kSleep:
      if (!s.writer_bell) return;
      w.at = At::kAwake;
      break;
    case At::kAwake:
      n.writer_waits = 0;
      n.writer_bell = false;
      w.at = At::kLook;
      break;
    case At::kDone: return;
  }
  out.push_back(n);
}

void step_reader(const State& s, const Variant& v, States& out) {
  State n = s;
  Side& r = n.reader;
  const auto after = [&](const State& now) { return now.tail == kTotal ? At::kDone : At::kLook; };
  switch (r.at) {
    case At::kLook:
      r.seen = s.head;
      r.at = r.seen != s.tail ? At::kMove : r.unseen ? At::kCheckPeer : At::kSayWait;
      break;
    case At::kMove: {
      const std::uint32_t there = r.seen - s.tail;
      for (std::uint32_t piece = 1; piece <= std::min(there, kPerStep); ++piece) {
        State m = s;
        m.tail = static_cast<std::uint8_t>(s.tail + piece);
        m.reader.left = static_cast<std::uint8_t>(there - piece);
        m.reader.unseen = v.looks_later && may_look_later(there, kBytes);
        m.reader.at = may_look_later(there, kBytes) ? after(m) : At::kCheckPeer;
        out.push_back(m);
      }
      return;
    }
    case At::kCheckPeer:
      n.reader.unseen = false;
      r.at = must_wake_writer(s.writer_waits, r.left, kBytes) ? At::kWake : after(s);
      break;
    case At::kWake:
      if (s.writer_waits != 0) n.writer_bell = true;
      n.writer_waits = 0;
      r.at = after(n);
      break;
    case At::kSayWait:
      n.reader_waits = ring_wait::kData;
      r.at = v.look_again ? At::kLookAgain : At::kSleep;
      break;
    case At::kLookAgain:
      r.at = ready_now(ring_wait::kData, s.head - s.tail, 0, kBytes) ? At::kUnsay : At::kSleep;
      break;
    case At::kUnsay:
      n.reader_waits = 0;
      r.at = At::kLook;
      break;
    case At::kSleep:
      if (!s.reader_bell) return;
      r.at = At::kAwake;
      break;
    case At::kAwake:
      n.reader_waits = 0;
      n.reader_bell = false;
      r.at = At::kLook;
      break;
    case At::kDone: return;
  }
  out.push_back(n);
}

struct Found {
  std::size_t states = 0;
  std::size_t ends = 0;   // all octets have been moved
  std::size_t stuck = 0;  // nobody can take a step, and octets are left
};

Found search(const Variant& variant) {
  Found found;
  const auto next = [&](const State& s, States& out) {
    step_writer(s, variant, out);
    step_reader(s, variant, out);
  };
  found.states = test::explore(State{}, next, [&](const State& s, bool end) {
    const bool done = s.writer.at == At::kDone && s.reader.at == At::kDone;
    if (end) ++(done ? found.ends : found.stuck);
  });
  return found;
}

TEST(RingWaitModel, NoOrderOfStepsLosesAWakeUp) {
  const Found found = search({});
  EXPECT_GT(found.states, 1000U);
  EXPECT_GT(found.ends, 0U);
  EXPECT_EQ(found.stuck, 0U);
}

TEST(RingWaitModel, WithoutTheSecondLookThereIsSuchAnOrder) {
  EXPECT_GT(search({.look_again = false}).stuck, 0U) << "the search does not find what it is for";
}

TEST(RingWaitModel, AReaderThatDoesNotLookLaterLeavesTheWriterAsleep) {
  EXPECT_GT(search({.looks_later = false}).stuck, 0U);
}

}  // namespace
}  // namespace weft::shm
