// The path of each connection, since when, and why: for --why and for `weft stat --sockets`.
//
//   number_states.cc       the process writes: plain stores, no system call
//   number_states_read.cc  `weft stat` reads, and trusts nothing that it finds there
//
// A connection that is not busy costs one store. With the first busy one of a process all of it
// goes to a segment of shared memory without a name, of one word for each number, which other
// processes of the same user find in /proc/PID/maps.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "sockets/granted/number_table.h"

namespace weft::sockets::granted {

struct NumberState {
  Why why = Why::kUnseen;
  bool accepted = false;
  std::int64_t since_ms = 0;  // of CLOCK_REALTIME

  [[nodiscard]] static NumberState of(std::uint64_t word) {
    return {static_cast<Why>(word & 0x7fU), (word & 0x80U) != 0,
            static_cast<std::int64_t>(word >> 8U)};
  }
  [[nodiscard]] std::uint64_t word() const {
    assert(since_ms >= 0 && static_cast<unsigned>(why) < 0x80U);
    return static_cast<std::uint64_t>(since_ms) << 8U | (accepted ? 0x80U : 0U) |
           static_cast<std::uint64_t>(why);
  }
};

// "ring", "rdma" or "tcp"; "?" of kHidden.
[[nodiscard]] const char* path_of(Why why);
[[nodiscard]] const char* reason_of(Why why);

struct StateTable {
  static constexpr std::uint64_t kMagic = 0x5765667453746174;
  static constexpr std::size_t kMost = 16384;  // numbers above it are not shown
  std::uint64_t magic;
  std::array<std::atomic<std::uint64_t>, kMost> words;
};

namespace states {

// A new socket has the number `fd`.
enum class From : bool { kSocket, kAccept };
void begin(int fd, From from);
void change(int fd, Number& number, Why why);
// ... and says so on stderr, if that is wanted.
void tell(int fd, Number& number, Why why);
// `to` is another number of the same socket.
void copy(int from, int to);
// From now on other processes can read it.
void share();
// In a child of fork(): what its parent shares is none of its own.
void in_child();

}  // namespace states
}  // namespace weft::sockets::granted
