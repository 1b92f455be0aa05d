// A TCP connection of this process with a ring beside it: one Lane, one number.
//
// Its life: busy (a call that moves data was seen often enough), posted (the registry names it),
// attached (both ends have the segment), joined (for each direction: what TCP has carried so far is
// counted, and no call is under way that was not). A lane is never freed, only reused, so a thread
// that comes too late finds an object of the right type.
//
// Threads: any, each counted by a Use.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "os/lock.h"
#include "sockets/grant/grant_words.h"
#include "sockets/granted/number_table.h"
#include "sockets/granted/rendezvous.h"
#include "sockets/granted/segment.h"
#include "sockets/spin.h"

namespace weft::sockets::granted {

// Shared by the processes of this end and by nobody else.
struct Own {
  GrantOwn words;
  std::atomic<std::uint32_t> writer;  // the thread that has the writers' lock, 0: none
};

enum class Nodelay : std::uint8_t { kUnknown, kOff, kOn };

struct LastTold {
  std::atomic<bool> blocked{false};       // the last read found nothing
  std::atomic<bool> kernel_named{false};  // by an edge: the kernel is asked until it has no more
  std::atomic<int> late_error{0};         // the kernel has told it, and the program has not heard
  std::atomic<bool> ended{false};         // the end, or an error: the peer reads no more, perhaps
};

// Counts by which callers leave out, most of the time, what is of no use to them.
struct InVain {
  std::atomic<std::uint32_t> reads{0};     // waited, and got nothing by the ring: in a row
  std::atomic<std::uint32_t> drains{0};    // waits for TCP to run empty, that did not: in a row
  std::atomic<std::uint32_t> left_out{0};  // looks into the kernel that a reader left out
};

struct Lane {
  // Calls under way.
  std::atomic<std::uint32_t> receiving{0};
  std::atomic<std::uint32_t> sending{0};
  std::atomic<std::uint32_t> visiting{0};

  std::atomic<bool> live{false};        // a number means it
  std::atomic<int> fd{-1};              // with the writers' lock, where there is one
  std::atomic<bool> settled{true};      // nothing is left to do for it to be joined
  std::atomic<bool> counted_in{false};  // all calls go by the ring's rules, and count octets of TCP
  std::atomic<bool> counted_out{false};
  std::atomic<bool> joined_in{false};   // windows may be opened
  std::atomic<bool> joined_out{false};  // calls may begin to use the ring
  std::atomic<bool> nonblocking{false};
  std::atomic<bool> set_nodelay{false};             // TCP_NODELAY is on for the ring's sake
  std::atomic<Nodelay> nodelay{Nodelay::kUnknown};  // what the program thinks of it
  std::uint64_t cookie = 0;
  unsigned end = 0;  // 0 or 1
  Key key;
  Ticket ticket;
  Number* number = nullptr;

  // Reads that each followed a wait which named this number, in the same thread.
  std::atomic<std::uint32_t> named_by{0};
  std::atomic<std::uint32_t> streak{0};
  std::atomic<std::uint64_t> reported{0};  // as kWritten when a wait named it last
  LastTold told;
  std::atomic<Segment*> segment{nullptr};
  Own* own = nullptr;
  os::SpinLock joining;

  SpinBudget look{};   // of a reader before it sleeps
  SpinBudget room{};   // of a writer before it takes back
  SpinBudget drain{};  // of a writer that waits for TCP to run empty
  InVain vain;
  std::atomic<std::int64_t> ban_until{0};
  std::atomic<std::int64_t> pen{0};
  std::uint64_t take_seen = 0;  // the spiller's, at its last tick
  Lane* next = nullptr;         // of all lanes ever made
  Lane* next_free = nullptr;

  [[nodiscard]] GrantMemory memory_in() const {
    Segment& s = *segment.load(std::memory_order_relaxed);
    return {s.words.at(1 - end), own->words, s.rings.at(1 - end).data(), kRingBytes};
  }
  [[nodiscard]] GrantMemory memory_out() const {
    Segment& s = *segment.load(std::memory_order_relaxed);
    return {s.words.at(end), own->words, s.rings.at(end).data(), kRingBytes};
  }
};

// For a lane with a segment: notes where this end runs. Whether the other end ran on the same core
// last: then it can't go on while this thread looks for its octets.
[[nodiscard]] bool on_one_core(const Lane& lane);

// Counts a call on a number while it lives; lane() is the number's lane, if it has one.
class Use {
 public:
  using Counter = std::atomic<std::uint32_t> Lane::*;
  Use(Number& number, Counter counter) noexcept;
  // A call by the spiller, or by another thread that has the lane already.
  Use(Lane& lane, Counter counter) noexcept;
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  [[nodiscard]] Lane* lane() const noexcept { return lane_; }

 private:
  Number* number_ = nullptr;
  Lane* lane_ = nullptr;
  Counter counter_;
};

namespace lanes {

// A lane for this number, which has none. Null: no memory.
[[nodiscard]] Lane* make(int fd, Number& number);
// All lanes that were ever made.
[[nodiscard]] Lane* first();
// Around fork().
void before_fork();
void after_fork();
void in_child();

}  // namespace lanes
}  // namespace weft::sockets::granted
