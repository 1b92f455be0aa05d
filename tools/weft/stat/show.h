// How `weft stat` prints: a block of text, or one line of JSON.
#pragma once

#include <string>

#include "weft/stat/rates.h"

namespace weft::cli {

struct StatHeading {
  int pid = 0;
  std::string name;     // of the program
  bool totals = false;  // averages since the device was opened, with the counters beside them
};

[[nodiscard]] std::string stat_text(const StatHeading& heading, const ProcessCounters& now,
                                    const Rates& rates);
// One line, with the line feed.
[[nodiscard]] std::string stat_json(const StatHeading& heading, const ProcessCounters& now,
                                    const Rates& rates);

}  // namespace weft::cli
