// The octets in the socket pair beside a ring, which say nothing but that there is something to do.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/patience.h"
#include "os/clock.h"

namespace weft::sockets {

// A filter of system calls may be in force (Channel::restrict_calls): then only those that filters
// usually let through, read, write and poll, stand in for recv and send.
void restrict_pair_calls();
[[nodiscard]] bool pair_calls_are_restricted();

[[nodiscard]] bool ready_for(int fd, short events, int timeout_ms);
// Sends octets into the pair, or takes some out. -1 with errno.
[[nodiscard]] ssize_t put_octets(int fd, const std::uint8_t* octets, std::size_t count, bool wait);
[[nodiscard]] ssize_t take_octets(int fd, std::uint8_t* octets, std::size_t count);
// Whether there is an octet, without taking it: 1, 0 at the end, or -1 with errno.
[[nodiscard]] ssize_t peek_octet(int fd, bool wait);
// How many octets there are, without taking them: at least one of them counts where system calls
// are restricted.
[[nodiscard]] ssize_t peek_octets(int fd, std::uint8_t* octets, std::size_t most);

// A yield that takes this long has run somebody else; after the second, one who does not sleep.
inline constexpr std::int64_t kLongYieldNs = 3'000;
inline constexpr std::int64_t kStrangersYieldNs = 500'000;

// A caller that was told EAGAIN may try again at once, on the core that the other end needs. Lets
// others have it now and then. True: `holds` now.
template <class Holds>
bool gave_way(Holds holds) {
  thread_local Patience patience;
  if (pair_calls_are_restricted() || !patience.is_over()) return false;
  const std::int64_t before = os::monotonic_ns();
  sched_yield();
  const std::int64_t took = os::monotonic_ns() - before;
  const bool found = holds();
  if (took < kLongYieldNs) {
    patience.note(Yielded::kToNobody);
  } else {
    // A relay that only passes on what was written gives nothing to read yet.
    patience.note(took < kStrangersYieldNs ? Yielded::kToAPeer : Yielded::kToAStranger);
  }
  return found;
}

}  // namespace weft::sockets
