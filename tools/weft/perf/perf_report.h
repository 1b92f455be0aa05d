// The three forms of a report of `weft perf`. Pure functions from results to text.
#pragma once

#include <string>

#include "weft/perf/results.h"

namespace weft::cli {

// For people: conditions, then one aligned line per contender. Ends with a newline.
[[nodiscard]] std::string report_table(const RunResults& results);

// For programs: {"results":[{...}], ...}; docs/perf.md lists the members. Ends with a newline.
[[nodiscard]] std::string report_json(const RunResults& results);

// For spreadsheets: a header line and one line per contender.
[[nodiscard]] std::string report_csv(const RunResults& results);

}  // namespace weft::cli
