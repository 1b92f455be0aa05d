// The descriptor numbers of this process, and what it knows of each.
//
// A number is the kernel's alone unless it is a TCP socket that this process made by a call that
// was seen, and that nothing has happened to since which could not be followed: a copy, another
// holder, an option that changes what a read gives. Only such a number may get a lane.
//
// Threads: any. Look-ups take no lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "os/lock.h"

namespace weft::sockets::granted {

struct Lane;

// Why the path of a connection is what it is (number_states.h).
enum class Why : std::uint8_t {
  kUnseen,  // Weft does not know the socket
  kQuiet,
  kLooking,
  kRing,
  kRdma,
  kRule,
  kShared,
  kOption,
  kSendBuffer,
  kCall,
  kShutdown,
  kRights,
  kNoPeer,
  kNoMemory,
  kHidden,  // said by who may not read the state
};

// Number::calls of a number that is the kernel's alone.
inline constexpr std::uint32_t kKernels = 0;
// A connection is busy, and worth a lane, after so many calls that move data:
// WEFT_SOCKETS_BUSY_CALLS, or this.
inline constexpr std::uint32_t kBusyCalls = 16;
[[nodiscard]] std::uint32_t busy_calls();

// The one registration of a number with an epoll instance, if calls that were seen made it.
struct Watch {
  int epoll = -1;  // the instance's number; -1: none
  std::uint32_t events = 0;
  std::uint64_t data = 0;
  bool lost = false;  // there are or were several
};

// How many processes have a socket, in memory that they share (holders.h).
using HolderCount = std::atomic<std::uint32_t>;

struct Number {
  std::atomic<Lane*> lane;
  std::atomic<HolderCount*> holders;   // null: this process alone, as far as calls were seen
  std::atomic<std::uint32_t> calls;    // kKernels, or 1 and the calls that were seen to move data
  std::atomic<std::uint32_t> running;  // such calls under way that found no lane
  std::atomic<std::uint64_t> state;    // NumberState::word()
  std::atomic<bool> asks;  // a wait that does not look into rings may tell of it: once, perhaps
  os::SpinLock watch_lock;
  Watch watch WEFT_GUARDED_BY(watch_lock);
};

namespace numbers {

// Null: beyond the table, or nothing was ever noted of it or its neighbors.
[[nodiscard]] Number* find(int fd);
// How many times this process has forked.
[[nodiscard]] std::uint32_t forks();
void note_fork();
// A new TCP socket of this process has the number `fd`, which the kernel gave behind a look at
// forks(). A child that was made since then may have it, too: then it is not noted.
void note_fresh(int fd, std::uint32_t forks);
// A new epoll instance has the number `fd`: it watches nothing. One that was closed had it,
// perhaps.
void note_instance(int fd);
[[nodiscard]] bool any_lane();
// In a child after fork: none has a lane, though a thread of the parent was retiring some. Those
// whose holders are counted begin again, all others are the kernel's alone.
void in_child();
// From now on no number is noted as fresh.
void stop();
// One above the highest number that was ever noted.
[[nodiscard]] int end();

}  // namespace numbers
}  // namespace weft::sockets::granted
