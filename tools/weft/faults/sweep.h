// Runs a program again and again, and lets another of its calls fail each time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "faults/table.h"
#include "weft/run/environment.h"

namespace weft::cli {

inline constexpr int kExitNoSweep = 3;  // the program fails by itself, or makes no such call

struct SweepOptions {
  ProgramOptions program;
  std::string report;    // folder; empty: a temporary one
  std::string suppress;  // as for `weft run --check`
  std::string process;   // pattern of a shell for the processes to sweep; empty: all
  std::uint64_t from = 1;
  std::uint64_t limit = 1000;   // runs
  std::uint64_t per_place = 0;  // 0: all
  double time_limit_s = 0;      // of a run; 0: by the run without a fault
  bool progress = false;        // to stderr
};

struct Swept {
  faults::SweepRun plain;  // in which no call failed
  std::vector<faults::Row> rows;
  std::vector<std::string> remarks;
  double time_limit_s = 0;
  int interrupted = 0;  // a signal, or 0
};
[[nodiscard]] Outcome<Swept> sweep(const SweepOptions& options);

}  // namespace weft::cli
