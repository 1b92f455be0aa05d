// A TCP connection of this process with a ring beside it: one Lane, one number.
//
// Its life: busy (a call that moves data was seen often enough), posted (the registry names it),
// attached (both ends have the segment), joined (join_states.h, for each direction). A lane is
// never freed, only reused, so a thread that comes too late finds an object of the right type.
//
// A lane is made of parts with one duty each; their headers say who may touch them:
//
//   calls       who knows the lane at this moment          calls_under_way.h
//   meeting     how its ends find each other               join.h
//   in, out     how far each direction is joined           join_states.h
//   rings       the memory, and the writers' lock          lane_rings.h
//   reading     what reads have shown to be worth it       reading_habits.h
//   writing     ... and writes                             writing_habits.h
//   news        what the kernel told, and the program not  late_news.h
//   nodelay     an option that is on for the ring's sake   nodelay_for_ring.h
//
// Threads: any, each counted by a Use.
#pragma once

#include <atomic>
#include <cstdint>

#include "os/lock.h"
#include "sockets/granted/calls_under_way.h"
#include "sockets/granted/join_states.h"
#include "sockets/granted/lane_rings.h"
#include "sockets/granted/late_news.h"
#include "sockets/granted/nodelay_for_ring.h"
#include "sockets/granted/number_table.h"
#include "sockets/granted/reading_habits.h"
#include "sockets/granted/rendezvous.h"
#include "sockets/granted/writing_habits.h"

namespace weft::sockets::granted {

// Which connection a lane is for. Written before its meeting begins.
struct Connection {
  std::uint64_t cookie = 0;  // of the socket: the number is still the lane's
  unsigned end = 0;          // 0 or 1
  Key key;
};

// How the ends of a lane find each other (join.h).
struct Meeting {
  std::atomic<bool> settled{true};  // nothing is left to do for the lane to be joined
  os::SpinLock lock;                // of the thread that goes on with it
  Ticket ticket;
};

struct Lane {
  CallsUnderWay calls;
  std::atomic<bool> live{false};  // a number means it
  std::atomic<int> fd{-1};        // with the writers' lock, where there is one
  std::atomic<bool> nonblocking{false};
  Number* number = nullptr;
  Connection connection;
  Meeting meeting;
  Direction in;
  Direction out;
  LaneRings rings;
  ReadingHabits reading;
  WritingHabits writing;
  LateNews news;
  NodelayForRing nodelay;
  Lane* next = nullptr;       // of all lanes ever made
  Lane* next_free = nullptr;  // with the lock of ring_lane.cc
};

// A new lane, counted as known by a visit of its maker: another thread may close the number at
// once, and the lane would be a third connection's before the maker has written to it.
struct NewLane {
  Lane* lane = nullptr;
};

// Counts a call on a number while it lives; lane() is the number's lane, if it has one.
class Use {
 public:
  Use(Number& number, Call call) noexcept;
  // A call by the spiller, or by another thread that has the lane already.
  Use(Lane& lane, Call call) noexcept;
  // The visit that lanes::make() has begun.
  explicit Use(const NewLane& made) noexcept : lane_(made.lane), call_(Call::kVisits) {}
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  [[nodiscard]] Lane* lane() const noexcept { return lane_; }

 private:
  Number* number_ = nullptr;
  Lane* lane_ = nullptr;
  Call call_;
};

// Calls `visit` with the lane of the number, counted as a visit. False: it has none.
template <class Visit>
bool with_lane(int fd, Visit visit) {
  Number* number = numbers::find(fd);
  if (number == nullptr || number->lane.load(std::memory_order_relaxed) == nullptr) return false;
  const Use use(*number, Call::kVisits);
  if (use.lane() == nullptr) return false;
  visit(*use.lane());
  return true;
}

namespace lanes {

// A lane for this number, which has none: for a Use. Null: no memory, or it has one by now.
[[nodiscard]] NewLane make(int fd, Number& number);
// All lanes that were ever made.
[[nodiscard]] Lane* first();
// While one lives, the memory of no lane goes that is live when it is looked at: for a look at many
// of them, which takes no time. Threads: its own.
class Scan {
 public:
  Scan() noexcept;
  ~Scan();
  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;
};
// Around fork(): no lane is made in between, and no signal comes, whose handler might make one.
void before_fork();
void after_fork();
void in_child();

}  // namespace lanes
}  // namespace weft::sockets::granted
