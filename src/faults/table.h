// A sweep as a text.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "faults/judge.h"

namespace weft::faults {

// A run in which a call failed.
struct Row {
  SweepRun run;
  Verdict verdict;
};

struct Summary {
  std::size_t reported = 0;
  std::size_t ignored = 0;
  std::size_t crashes = 0;
  std::size_t hangs = 0;
  std::size_t waits = 0;     // runs in which another process did not end
  std::size_t leaks = 0;     // runs that leave handles
  std::size_t findings = 0;  // runs with findings
};
[[nodiscard]] Summary summary_of(std::span<const Row> rows);

// "crash (SIGSEGV)".
[[nodiscard]] std::string result_text(const Row& row);
// A line for each row, with what it leaves and what was found below, and the sums.
[[nodiscard]] std::string table_of(std::span<const Row> rows);

}  // namespace weft::faults
