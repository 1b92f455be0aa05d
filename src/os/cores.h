// How many cores there are for this process, and whether one is left for a thread that only looks
// whether something has come.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "os/fd.h"

namespace weft::os {

// Any thread. Holds a descriptor of /proc/loadavg, whose fourth column counts the threads
// that run or wait for a core at this moment (proc(5)).
class Cores {
 public:
  Cores();
  // Nobody waits for a core while the caller runs. Nullopt: the system does not say. One system
  // call, about a microsecond.
  [[nodiscard]] std::optional<bool> are_enough() const;

 private:
  Fd load_;
  unsigned online_;
};

// How many cores there are for threads of this process: the machine's; 1 if a CPU quota of its
// control groups allows less than one core (cpu.max, or cpu.cfs_quota_us of version 1). A quota
// that can't be read is none. Affinity is not asked: a program bound to one core may have it to
// itself. `root` stands before /proc and /sys. Any thread; reads files, so it is for set-up.
[[nodiscard]] unsigned usable_cores(const std::string& root = "");

// Threads that run or wait, by the text of /proc/loadavg. Nullopt: it has no such column, or says
// that not even the reader runs.
[[nodiscard]] std::optional<unsigned> running_threads(std::string_view loadavg);

}  // namespace weft::os
