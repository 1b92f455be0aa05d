// Reading the counters of another process that uses Weft, while it runs.
#pragma once

#include <weft/counters.h>
#include <weft/result.h>

#include <cstdint>

#pragma GCC visibility push(default)
namespace weft {

struct ProcessCounters {
  Counters counters;              // of its first device, since that was opened
  std::uint32_t queue_pairs = 0;  // that exist now
  std::uint32_t connections = 0;  // established now
  std::uint32_t rings = 0;        // of shared memory instead of TCP, held now
  std::int64_t age_ns = 0;        // from opening the device to these values
};

// Asks the process `pid`, which must run as the same user, and waits up to 200 ms for its answer.
// A process that nobody asks pays nothing for this. Any thread.
// `pid` is its number here; if no process here has it, the number that a process of another PID
// namespace (a container) has there, whose /dev/shm is this one.
//   kNotFound     no such process of this user, or it publishes no counters: it has no Weft device
//                 open, no connection yet, or found no room for them in /dev/shm
//   kInvalidArgument   several processes of other PID namespaces have this number
//   kBadVersion   it uses a version of Weft whose counters this one cannot read
//   kTimedOut     it does not answer: stopped, or kept from running
//   kBusy         its values change faster than they can be read: ask again
//   kSystem       the operating system refused
[[nodiscard]] Result<ProcessCounters> read_process_counters(int pid);

}  // namespace weft
#pragma GCC visibility pop
