#include "files/protocol/cpu_time.h"

#include <cstdio>

#include "os/clock.h"

namespace weft::files {

double cpu_seconds() { return static_cast<double>(os::clock_ns(CLOCK_PROCESS_CPUTIME_ID)) / 1e9; }

std::string cpu_text(std::uint64_t bytes) {
  constexpr std::uint64_t kLeastForRates = 10'000'000;
  const double cpu_s = cpu_seconds();
  char text[64];
  if (bytes < kLeastForRates) {
    std::snprintf(text, sizeof text, "%.3f CPU s", cpu_s);
  } else {
    std::snprintf(text, sizeof text, "%.3f CPU s (%.3f per GB)", cpu_s,
                  cpu_s / (static_cast<double>(bytes) / 1e9));
  }
  return text;
}

}  // namespace weft::files
