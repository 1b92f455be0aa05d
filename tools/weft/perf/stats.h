// Percentiles and medians. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::cli {

// The value below which `percent` of the samples lie (nearest rank); the samples get partly sorted.
// 0 without samples.
[[nodiscard]] double percentile(std::vector<std::int64_t>& samples, double percent);
// The middle value, or the mean of the two middle ones. 0 without values.
[[nodiscard]] double median(std::vector<double> values);
[[nodiscard]] double smallest(const std::vector<double>& values);
[[nodiscard]] double largest(const std::vector<double>& values);

struct LatencyUs {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
  std::uint64_t samples = 0;
};
// Samples in nanoseconds, each divided by `divisor` (2 turns round trips into one way).
[[nodiscard]] LatencyUs summarize(std::vector<std::int64_t>& samples_ns, double divisor);
// Medians of each percentile over the rounds; the largest maximum; the sum of the samples.
[[nodiscard]] LatencyUs combine(const std::vector<LatencyUs>& rounds);

}  // namespace weft::cli
