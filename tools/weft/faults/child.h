// A program that runs once, with all the processes that it starts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

struct ChildEnd {
  bool timed_out = false;
  int interrupted = 0;  // the signal that this process got meanwhile, or 0
  int status = 0;       // exit status of the program
  int signal = 0;       // that ended the program, or 0
  double seconds = 0;
  std::string output;      // the last of what it printed, stdout and stderr
  std::vector<int> alive;  // processes that were there at the time limit
};

// Before the first run_child(), once: descriptors 0 to 2 are there, orphans come to this process,
// and SIGINT, SIGTERM and SIGHUP end a run.
[[nodiscard]] Outcome<void> prepare_for_children();

// How long a program may take.
struct TimeLimit {
  double seconds = 0;
  // Asked now and then: true from when on it may take only so much longer.
  std::function<bool()> is_decided;
  double seconds_then = 0;
};

// Starts `file` and waits for its end. It reads nothing from stdin. When it has ended, processes
// that it leaves get a second to end too. Then, and at the time limit, SIGKILL ends all of them.
// Those are all descendants of this process. Main thread only.
[[nodiscard]] Outcome<ChildEnd> run_child(const std::string& file,
                                          const std::vector<std::string>& words,
                                          const TimeLimit& limit);

}  // namespace weft::cli
