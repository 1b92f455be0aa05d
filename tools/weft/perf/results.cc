#include "weft/perf/results.h"

#include <algorithm>

namespace weft::cli {
namespace {

template <class Pick>
std::vector<double> collect(const std::vector<RoundResult>& rounds, Pick pick) {
  std::vector<double> values;
  for (const RoundResult& round : rounds) {
    if (round.has_bandwidth) values.push_back(pick(round));
  }
  return values;
}

double divide(double a, double b) { return b > 0 ? a / b : 0; }

template <class Pick>
double median_ratio(const ContenderResult& mine, const ContenderResult& other, Pick pick) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(mine.rounds.size(), other.rounds.size()); ++i) {
    const double base = pick(other.rounds[i]);
    if (base > 0) ratios.push_back(pick(mine.rounds[i]) / base);
  }
  return median(std::move(ratios));
}

}  // namespace

Summary summarize(const ContenderResult& result) {
  using R = RoundResult;
  constexpr double kGb = 1e9;
  Summary out;
  const auto rates = collect(result.rounds, [](const R& r) { return r.bytes_per_s; });
  out.has_bandwidth = !rates.empty();
  out.bytes_per_s = median(rates);
  out.bytes_per_s_min = smallest(rates);
  out.bytes_per_s_max = largest(rates);
  out.messages_per_s = median(collect(result.rounds, [](const R& r) { return r.messages_per_s; }));
  const auto per_gb = [&](auto cpu) {
    return median(collect(result.rounds, [&](const R& r) {
      return divide(cpu(r) * kGb, static_cast<double>(r.bytes));
    }));
  };
  const auto per_message = [&](auto cpu) {
    return median(collect(result.rounds, [&](const R& r) {
      return divide(cpu(r) * 1e6, static_cast<double>(r.messages));
    }));
  };
  const auto client = [](const R& r) { return r.client_cpu_s; };
  const auto server = [](const R& r) { return r.server_cpu_s; };
  out.client_cpu_s_per_gb = per_gb(client);
  out.server_cpu_s_per_gb = per_gb(server);
  out.client_cpu_us_per_message = per_message(client);
  out.server_cpu_us_per_message = per_message(server);
  std::vector<LatencyUs> latencies;
  for (const R& round : result.rounds) {
    if (round.has_latency) latencies.push_back(round.latency);
  }
  out.has_latency = !latencies.empty();
  out.latency = combine(latencies);
  return out;
}

double bandwidth_ratio(const ContenderResult& mine, const ContenderResult& other) {
  // Set-ups carry no bytes: there it is their rate that counts.
  const bool rates = mine.spec.op == Operation::kConnect;
  return median_ratio(mine, other, [rates](const RoundResult& r) {
    return rates ? r.messages_per_s : r.bytes_per_s;
  });
}

double latency_ratio(const ContenderResult& mine, const ContenderResult& other) {
  return median_ratio(mine, other, [](const RoundResult& r) { return r.latency.p50; });
}

const ContenderResult* tcp_beside(const std::vector<ContenderResult>& results, std::size_t index,
                                  TcpMode mode) {
  std::vector<TestSpec> specs;
  for (const ContenderResult& result : results) specs.push_back(result.spec);
  const int at = tcp_counterpart(specs, index, mode);
  return at < 0 ? nullptr : &results[static_cast<std::size_t>(at)];
}

std::string_view latency_kind(Operation op) {
  switch (op) {
    case Operation::kRead:
    case Operation::kFetchAdd:
    case Operation::kCmpSwap: return "request to completion";
    case Operation::kConnect: return "set-up time";
    case Operation::kWrite:
    case Operation::kSend:
    case Operation::kWriteImm: break;
  }
  return "half round trip";
}

}  // namespace weft::cli
