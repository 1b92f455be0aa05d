// Every order of the steps of a ring that a reader grants beside TCP (sockets/grant): several
// writers and readers, one that reads by calls that nobody sees, a signal handler, the thread that
// takes back, a kill. The machines are those of the library; the kernel is a list of octets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "sockets/grant/grant_reader.h"
#include "sockets/grant/grant_writer.h"

namespace weft::sockets {
namespace {

constexpr std::size_t kWords = static_cast<std::size_t>(GrantWord::kCount);
constexpr std::uint64_t kRing = 2;    // octets; they are few, so that the ring wraps
constexpr std::size_t kQueueMax = 2;  // octets that the kernel takes, at most

enum Agent : std::uint8_t { kFirst, kSecond, kHandler, kSpiller, kWriters };
constexpr std::size_t kReaders = 2;
constexpr std::uint8_t kNobody = 0xff;

// Who takes part.
struct Cast {
  std::array<std::uint8_t, 3> sends{};  // octets in all, by each of the first three agents
  std::uint8_t a_call = 2;              // octets in one
  bool spiller = false;
  std::uint8_t queue = kQueueMax;  // octets that the kernel takes
  std::uint8_t readers = 1;
  std::uint8_t reads = kRing;     // octets in one call
  bool first_reads_once = false;  // the first reader makes one call, and no more
  bool spins = true;              // a reader looks any number of times before it sleeps; else twice
  bool keeps = false;             // windows stay open between calls
  bool leaves_out = false;        // some reads ask the kernel only when they are ready to sleep
  bool raw = false;               // the first reader makes some calls that nobody sees
  bool killed = false;
  bool banned = false;  // the second writer may not begin to use the ring
  GrantRule broken{};
  bool breaks = false;
};

struct Writing {
  GrantWriter call{GrantCall::kSend, 1, true};
  GrantNeed need = GrantNeed::kStep;
  std::uint8_t in_call = 0;
  std::uint8_t given = 0;  // octets that calls have returned as sent
  std::uint8_t pad[5] = {};
};
struct Reading {
  GrantReader call{1, {}};
  GrantNeed need = GrantNeed::kStep;
  std::uint8_t in_call = 0;
  std::uint8_t ended = 0;
  std::uint8_t raw = 0;  // in a call that nobody sees
  std::array<std::uint8_t, kRing> target{};
  std::uint8_t pad[2] = {};
};
struct State {
  std::array<Writing, kWriters> writing{};
  std::array<Reading, kReaders> reading{};
  std::array<std::uint8_t, kWords> words{};
  std::array<std::uint8_t, kRing> ring{};
  std::array<std::uint8_t, kQueueMax> queue{};
  std::uint8_t queued = 0;
  std::uint8_t dequeued = 0;
  std::uint8_t lock = kNobody;
  std::uint8_t blocked = 0;  // the first writer's signals
  std::uint8_t interrupted = 0;
  std::uint8_t dead = 0;
  std::uint8_t wrong = 0;  // octets lost, doubled or out of order
  std::array<std::uint8_t, 3> next{};
  std::uint8_t pad[2] = {};
};
static_assert(std::has_unique_object_representations_v<State>);

// What the machines see of it.
struct ModelMemory {
  State& s;
  const Cast& cast;
  std::uint8_t agent;

  [[nodiscard]] static std::uint64_t ring_bytes() { return kRing; }
  [[nodiscard]] std::uint64_t load(GrantWord w) const {
    return s.words[static_cast<std::size_t>(w)];
  }
  void store(GrantWord w, std::uint64_t value) {
    s.words[static_cast<std::size_t>(w)] = static_cast<std::uint8_t>(value);
  }
  void add(GrantWord w, std::uint64_t value) { store(w, load(w) + value); }
  [[nodiscard]] bool swap(GrantWord w, std::uint64_t expected, std::uint64_t value) {
    if (load(w) != expected) return false;
    store(w, value);
    return true;
  }
  [[nodiscard]] std::uint8_t octet(std::uint64_t offset) const {
    return static_cast<std::uint8_t>(agent * 16U + s.writing[agent].given + offset);
  }
  void put(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i) s.ring[(position + i) % kRing] = octet(offset + i);
  }
  void get(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i) {
      s.reading[agent].target.at(offset + i) = s.ring[(position + i) % kRing];
    }
  }
  [[nodiscard]] bool keeps(GrantRule rule) const { return !cast.breaks || rule != cast.broken; }
};

using States = std::vector<State>;

void deliver(State& s, std::uint8_t octet) {
  const std::size_t from = octet >> 4U;
  if (from >= s.next.size() || s.next[from]++ != (octet & 0xfU)) s.wrong = 1;
}

std::uint8_t enqueue(State& s, std::uint8_t octet, std::uint8_t limit) {
  if (s.queued >= limit) return 0;
  s.queue[s.queued++] = octet;
  return 1;
}

// Octets that leave the kernel are delivered at that moment.
std::uint8_t dequeue(State& s, std::size_t most) {
  const auto n = static_cast<std::uint8_t>(std::min<std::size_t>(s.queued, most));
  for (std::uint8_t i = 0; i < n; ++i) deliver(s, s.queue[i]);
  std::copy(s.queue.begin() + n, s.queue.end(), s.queue.begin());
  std::fill(s.queue.end() - n, s.queue.end(), std::uint8_t{0});
  s.queued = static_cast<std::uint8_t>(s.queued - n);
  s.dequeued = static_cast<std::uint8_t>(s.dequeued + n);
  return n;
}

class Model {
 public:
  explicit Model(const Cast& cast) : cast_(cast) {}

  struct Found {
    std::size_t states = 0;
    std::size_t ends = 0;
    std::size_t wrong = 0;
    std::size_t stuck = 0;  // nobody can take a step, and octets are left
    std::size_t lost = 0;   // readers have read to the end, and octets that were sent are missing
    std::size_t by_ring = 0;
    [[nodiscard]] std::size_t faults() const { return wrong + stuck + lost; }
  };

  [[nodiscard]] Found search() const {
    Found found;
    State first;
    first.words[static_cast<std::size_t>(GrantWord::kTake)] = kTaken;
    std::unordered_set<Print, HashOfPrint> known;
    States open;
    States out;
    const auto meet = [&](const State& s) {
      if (known.insert(print(s)).second) open.push_back(s);
    };
    meet(first);
    while (!open.empty() && found.faults() == 0) {
      const State s = open.back();
      open.pop_back();
      if (s.wrong != 0) {
        ++found.wrong;
        continue;
      }
      out.clear();
      steps(s, out);
      if (s.words[static_cast<std::size_t>(GrantWord::kTake)] > kTaken) ++found.by_ring;
      if (out.empty()) judge(s, found);
      for (const State& next : out) meet(next);
    }
    found.states = known.size();
    return found;
  }

 private:
  // Two hashes stand for a state: 128 bits, and some millions of states.
  struct Print {
    std::uint64_t a = 1469598103934665603U;
    std::uint64_t b = 88172645463325252U;
    bool operator==(const Print&) const = default;
  };
  struct HashOfPrint {
    std::size_t operator()(const Print& p) const { return static_cast<std::size_t>(p.a); }
  };
  static Print print(const State& s) {
    std::array<std::uint64_t, sizeof(State) / sizeof(std::uint64_t)> words;
    static_assert(sizeof words == sizeof s);
    std::memcpy(words.data(), &s, sizeof s);
    Print result;
    for (const std::uint64_t word : words) {
      result.a = (result.a ^ word) * 0x9e3779b97f4a7c15U;
      result.a ^= result.a >> 32U;
      result.b = (result.b + word) * 0xc2b2ae3d27d4eb4fU;
      result.b ^= result.b >> 29U;
    }
    return result;
  }

  void judge(const State& s, Found& found) const {
    bool missing = false;
    for (std::size_t a = 0; a < s.next.size(); ++a) {
      missing =
          missing || s.next[a] < s.writing[a].given ||
          (s.dead == 0 && s.next[a] < cast_.sends[a] && (a != kHandler || s.interrupted != 0));
    }
    if (!missing) {
      ++found.ends;
    } else if (s.dead != 0) {
      ++found.lost;
    } else {
      ++found.stuck;
    }
  }

  void steps(const State& s, States& out) const {
    if (s.dead == 0) {
      // The first writer goes on when its handler has ended.
      const bool handling = s.writing[kHandler].in_call != 0;
      if (!handling) writer_steps(s, kFirst, out);
      writer_steps(s, kSecond, out);
      writer_steps(s, kHandler, out);
      if (cast_.spiller) writer_steps(s, kSpiller, out);
      if (cast_.killed) {
        State n = s;
        n.dead = 1;
        n.writing[kHandler].in_call = 0;
        out.push_back(n);
      }
    }
    for (std::uint8_t r = 0; r < cast_.readers; ++r) reader_steps(s, r, out);
  }

  void begin_writing(const State& s, std::uint8_t a, States& out) const {
    State n = s;
    Writing& w = n.writing[a];
    if (a == kSpiller) {
      if (s.words[static_cast<std::size_t>(GrantWord::kRing)] == 0 && !owes(s)) return;
      if (owes(s) && s.queued >= cast_.queue) return;
      w.call = GrantWriter(GrantCall::kSpill, 0, false);
    } else {
      const std::uint8_t left = static_cast<std::uint8_t>(cast_.sends[a] - w.given);
      if (left == 0) return;
      if (owes(s) && s.queued >= cast_.queue) return;  // as poll for room says
      const std::uint8_t bytes = std::min(left, cast_.a_call);
      if (a == kHandler) {
        const bool unfit = s.blocked != 0 || s.writing[kFirst].in_call == 0;
        if (unfit) return;
        n.interrupted = 1;
        const bool holds = s.lock == kFirst;
        w.call = GrantWriter(holds ? GrantCall::kSendInSignal : GrantCall::kSend, bytes, !holds);
      } else {
        w.call = GrantWriter(GrantCall::kSend, bytes, !cast_.banned || a != kSecond);
      }
    }
    w.in_call = 1;
    w.need = GrantNeed::kStep;
    out.push_back(n);
  }

  static bool owes(const State& s) {
    return s.words[static_cast<std::size_t>(GrantWord::kOwedFrom)] !=
           s.words[static_cast<std::size_t>(GrantWord::kOwedTo)];
  }

  void writer_steps(const State& s, std::uint8_t a, States& out) const {
    if (s.writing[a].in_call == 0) return begin_writing(s, a, out);
    State n = s;
    Writing& w = n.writing[a];
    const auto answered = [&](std::int64_t value) {
      w.call.answer(value);
      w.need = GrantNeed::kStep;
      out.push_back(n);
    };
    switch (w.need) {
      case GrantNeed::kStep: {
        ModelMemory memory{n, cast_, a};
        w.need = w.call.step(memory);
        if (w.need == GrantNeed::kDone) end_writing(n, a);
        out.push_back(n);
        return;
      }
      case GrantNeed::kLock:
        if (s.lock != kNobody) return;
        n.lock = a;
        return answered(0);
      case GrantNeed::kUnlock: n.lock = kNobody; return answered(0);
      case GrantNeed::kBlockSignals:
        if (a == kFirst) n.blocked = 1;
        return answered(0);
      case GrantNeed::kAllowSignals:
        if (a == kFirst) n.blocked = 0;
        return answered(0);
      case GrantNeed::kRoom: {
        answered(0);
        n = s;
        return answered(1);
      }
      case GrantNeed::kSendRing: {
        std::int64_t sent = 0;
        for (std::uint64_t p = w.call.from(); p < w.call.to(); ++p) {
          sent += enqueue(n, s.ring[p % kRing], cast_.queue);
        }
        return answered(sent);
      }
      default: {  // kSend
        if (s.queued >= cast_.queue) return;
        const ModelMemory memory{n, cast_, a};
        std::int64_t sent = 0;
        for (std::uint64_t i = 0; i < w.call.left(); ++i) {
          sent += enqueue(n, memory.octet(w.call.done() + i), cast_.queue);
        }
        return answered(sent);
      }
    }
  }

  static void end_writing(State& n, std::uint8_t a) {
    Writing& w = n.writing[a];
    if (w.call.result() > 0) w.given = static_cast<std::uint8_t>(w.given + w.call.result());
    w.in_call = 0;
    w.need = GrantNeed::kStep;
    w.call = GrantWriter(GrantCall::kSend, 1, true);
  }

  void reader_step(State& n, std::uint8_t r) const {
    Reading& reading = n.reading[r];
    ModelMemory memory{n, cast_, r};
    const bool had = reading.call.by_ring();
    reading.need = reading.call.step(memory);
    // Octets of the ring are delivered by the step that claims them: the next step may be late.
    if (!had && reading.call.by_ring()) {
      for (std::int64_t i = 0; i < reading.call.result(); ++i) {
        deliver(n, reading.target.at(static_cast<std::size_t>(i)));
      }
      reading.target = {};
    }
    if (reading.need != GrantNeed::kDone) return;
    end_reading(reading);
    if (r == 0 && cast_.first_reads_once) reading.ended = 1;
  }

  void reader_steps(const State& s, std::uint8_t r, States& out) const {
    State n = s;
    Reading& reading = n.reading[r];
    if (reading.ended != 0) return;
    if (reading.raw != 0) {
      if (s.queued == 0 && s.dead == 0) return;
      // At the end it asks once more by a call that is seen. One that never does misses what a
      // killed writer had in the ring.
      dequeue(n, cast_.reads);
      reading.raw = 0;
      out.push_back(n);
      return;
    }
    if (reading.in_call == 0) {
      reading.in_call = 1;
      reading.call = GrantReader(cast_.reads, {.keeps = cast_.keeps});
      out.push_back(n);
      if (cast_.leaves_out) {
        reading.call = GrantReader(cast_.reads, {.keeps = cast_.keeps, .looks = false});
        out.push_back(n);
      }
      if (cast_.raw && r == 0 && s.dead == 0) {
        n = s;
        n.reading[r].raw = 1;
        out.push_back(n);
      }
      return;
    }
    const auto answered = [&](std::int64_t value) {
      reading.call.answer(value);
      reading.need = GrantNeed::kStep;
      out.push_back(n);
    };
    switch (reading.need) {
      case GrantNeed::kStep:
        reader_step(n, r);
        out.push_back(n);
        return;
      case GrantNeed::kReceiveNow:
        if (s.queued == 0) return answered(s.dead != 0 ? 0 : kGrantWouldBlock);
        return answered(dequeue(n, cast_.reads));
      case GrantNeed::kReceive:
        if (s.queued == 0 && s.dead == 0) return;
        return answered(dequeue(n, cast_.reads));
      case GrantNeed::kSpin: {
        answered(0);
        if (!cast_.spins) return;
        n = s;
        return answered(1);
      }
      case GrantNeed::kCountReceived: return answered(s.dequeued);
      default: return answered(1);  // kOtherReader
    }
  }

  static void end_reading(Reading& reading) {
    if (reading.call.result() <= 0) reading.ended = 1;
    reading.in_call = 0;
    reading.need = GrantNeed::kStep;
    reading.call = GrantReader(1, {});
  }

  Cast cast_;
};

void expect_right(const Cast& cast) {
  const Model::Found found = Model(cast).search();
  EXPECT_GT(found.ends, 0U);
  EXPECT_GT(found.by_ring, 0U) << "the ring was never used";
  EXPECT_EQ(found.wrong, 0U);
  EXPECT_EQ(found.stuck, 0U);
  EXPECT_EQ(found.lost, 0U);
  ::testing::Test::RecordProperty("states", static_cast<int>(found.states));
}

const Cast kAlone{.sends = {4, 0, 0}, .leaves_out = true};
const Cast kTwoWriters{.sends = {2, 2, 0}, .keeps = true, .leaves_out = true};
const Cast kOneIsBanned{.sends = {2, 2, 0}, .keeps = true, .banned = true};
const Cast kTwoReaders{.sends = {2, 0, 0}, .readers = 2, .spins = false, .leaves_out = true};
const Cast kTwoReadersKilled{
    .sends = {2, 0, 0}, .queue = 1, .readers = 2, .reads = 1, .spins = false, .killed = true};
const Cast kSpilled{.sends = {4, 0, 0}, .spiller = true, .keeps = true, .leaves_out = true};
const Cast kUnseen{.sends = {4, 0, 0}, .spiller = true, .keeps = true, .raw = true};
const Cast kKilled{
    .sends = {4, 0, 0}, .spiller = true, .keeps = true, .leaves_out = true, .killed = true};
const Cast kInterrupted{.sends = {2, 0, 1}};

TEST(SocketGrantModel, OneWriterAndOneReader) { expect_right(kAlone); }
TEST(SocketGrantModel, TwoWriters) { expect_right(kTwoWriters); }
TEST(SocketGrantModel, TwoWritersOfWhomOneMayNotBegin) { expect_right(kOneIsBanned); }
TEST(SocketGrantModel, TwoReaders) { expect_right(kTwoReaders); }
TEST(SocketGrantModel, AThreadThatTakesBackAtAnyTime) { expect_right(kSpilled); }

TEST(SocketGrantModel, ReadsThatNobodySees) { expect_right(kUnseen); }

TEST(SocketGrantModel, AWriterThatIsKilledAnywhere) { expect_right(kKilled); }

TEST(SocketGrantModel, AWriterThatIsKilledWhileTwoRead) { expect_right(kTwoReadersKilled); }

TEST(SocketGrantModel, ASignalHandlerThatSends) { expect_right(kInterrupted); }

struct Broken {
  GrantRule rule;
  const char* name;
  Cast cast;
  bool own_cast = false;  // that no test above has shown to be right
};

class SocketGrantRule : public ::testing::TestWithParam<Broken> {};

// The same cast is right with the rule, and goes wrong without it.
TEST_P(SocketGrantRule, IsMissedWhenItIsBroken) {
  if (GetParam().own_cast) expect_right(GetParam().cast);
  Cast cast = GetParam().cast;
  cast.broken = GetParam().rule;
  cast.breaks = true;
  EXPECT_GT(Model(cast).search().faults(), 0U) << "the search does not find what it is for";
}

const std::array kBroken = {
    Broken{GrantRule::kReaderLooksAgain, "ReaderLooksAgain", kAlone},
    Broken{GrantRule::kWriterLooksAgain, "WriterLooksAgain", kAlone},
    Broken{GrantRule::kSleepersAreCounted, "SleepersAreCounted",
           Cast{.sends = {2, 0, 0},
                .a_call = 1,
                .readers = 2,
                .first_reads_once = true,
                .spins = false,
                .keeps = true},
           true},
    Broken{GrantRule::kTcpIsEmptyFirst, "TcpIsEmptyFirst", kSpilled},
    Broken{GrantRule::kFlightSeesRing, "FlightSeesRing", kTwoWriters},
    Broken{GrantRule::kTakenBeforeMark, "TakenBeforeMark", kKilled},
    Broken{GrantRule::kClaimCompares, "ClaimCompares", kSpilled},
    Broken{GrantRule::kEndLooksAgain, "EndLooksAgain", kKilled},
    Broken{GrantRule::kEndFindsTaken, "EndFindsTaken", kKilled},
    Broken{GrantRule::kCountedInside, "CountedInside", kTwoReadersKilled},
    Broken{GrantRule::kRawReadsCount, "RawReadsCount",
           Cast{.sends = {4, 0, 0}, .spiller = true, .keeps = true, .raw = true, .killed = true},
           true},
    Broken{GrantRule::kOwedFirst, "OwedFirst",
           Cast{.sends = {4, 0, 0}, .spiller = true, .queue = 1, .spins = false, .keeps = true},
           true},
    Broken{GrantRule::kInterruptedPutLooks, "InterruptedPutLooks", kInterrupted},
    Broken{GrantRule::kSignalsBlocked, "SignalsBlocked", kInterrupted},
};

INSTANTIATE_TEST_SUITE_P(Each, SocketGrantRule, ::testing::ValuesIn(kBroken),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace weft::sockets
