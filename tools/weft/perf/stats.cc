#include "weft/perf/stats.h"

#include <algorithm>
#include <cmath>

namespace weft::cli {
namespace {

template <class Pick>
double median_of(const std::vector<LatencyUs>& rounds, Pick pick) {
  std::vector<double> values;
  for (const LatencyUs& round : rounds) values.push_back(pick(round));
  return median(std::move(values));
}

}  // namespace

double percentile(std::vector<std::int64_t>& samples, double percent) {
  if (samples.empty()) return 0;
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(samples.size()));
  const auto index = static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  const auto at = samples.begin() + std::min(index, std::ssize(samples) - 1);
  std::nth_element(samples.begin(), at, samples.end());
  return static_cast<double>(*at);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

double smallest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::ranges::min_element(values);
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::ranges::max_element(values);
}

LatencyUs summarize(std::vector<std::int64_t>& samples_ns, double divisor) {
  const double scale = 1e-3 / divisor;
  LatencyUs out;
  out.p50 = percentile(samples_ns, 50) * scale;
  out.p90 = percentile(samples_ns, 90) * scale;
  out.p99 = percentile(samples_ns, 99) * scale;
  out.p999 = percentile(samples_ns, 99.9) * scale;
  out.max = percentile(samples_ns, 100) * scale;
  out.samples = samples_ns.size();
  return out;
}

LatencyUs combine(const std::vector<LatencyUs>& rounds) {
  LatencyUs out;
  out.p50 = median_of(rounds, [](const LatencyUs& r) { return r.p50; });
  out.p90 = median_of(rounds, [](const LatencyUs& r) { return r.p90; });
  out.p99 = median_of(rounds, [](const LatencyUs& r) { return r.p99; });
  out.p999 = median_of(rounds, [](const LatencyUs& r) { return r.p999; });
  for (const LatencyUs& round : rounds) {
    out.max = std::max(out.max, round.max);
    out.samples += round.samples;
  }
  return out;
}

}  // namespace weft::cli
