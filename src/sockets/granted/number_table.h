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

namespace weft::sockets::granted {

struct Lane;

// Numbers::calls of a number that is the kernel's alone.
inline constexpr std::uint32_t kKernels = 0;
// A connection is busy, and worth a lane, after so many calls that move data.
inline constexpr std::uint32_t kBusyCalls = 16;

struct Number {
  std::atomic<Lane*> lane;
  std::atomic<std::uint32_t> calls;    // kKernels, or 1 and the calls that were seen to move data
  std::atomic<std::uint32_t> running;  // such calls under way that found no lane
};

namespace numbers {

// Null: beyond the table, or nothing was ever noted of it or its neighbors.
[[nodiscard]] Number* find(int fd);
// A new TCP socket of this process has the number `fd`.
void note_fresh(int fd);
// The number means something else now, or its socket has another holder: it is the kernel's alone.
void leave_to_kernel(int fd);
// The same for all numbers in [first, last] that `which` says yes to.
void leave_range(unsigned first, unsigned last, bool (*which)(int fd));
// One above the highest number that was ever noted.
[[nodiscard]] int end();

}  // namespace numbers
}  // namespace weft::sockets::granted
