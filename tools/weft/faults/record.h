// Reads what the processes of a run have written to its folder.
#pragma once

#include <string>

#include "faults/judge.h"

namespace weft::cli {

// Fills `images` and `found`. Lines that were cut off are left out.
void read_records(const std::string& folder, faults::SweepRun& run);

// The last line of an output that is not empty.
[[nodiscard]] std::string last_line(const std::string& output);

}  // namespace weft::cli
