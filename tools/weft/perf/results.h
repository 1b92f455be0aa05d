// What a run of `weft perf` found out, ready to be reported. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/perf/perf_messages.h"
#include "weft/perf/plan.h"
#include "weft/perf/stats.h"

namespace weft::cli {

// One contender in one round.
struct RoundResult {
  bool has_bandwidth = false;
  double bytes_per_s = 0;
  double messages_per_s = 0;
  double client_cpu_s = 0;  // of the bandwidth phase
  double server_cpu_s = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  bool has_latency = false;
  LatencyUs latency;
};

struct ContenderResult {
  TestSpec spec;
  std::vector<RoundResult> rounds;
  std::uint64_t verified_bytes = 0;
  std::uint64_t verified_messages = 0;
  LinkFacts client;
  LinkFacts server;
};

// The figures of a report: medians over the rounds.
struct Summary {
  bool has_bandwidth = false;
  double bytes_per_s = 0;
  double bytes_per_s_min = 0;
  double bytes_per_s_max = 0;
  double messages_per_s = 0;
  double client_cpu_s_per_gb = 0;  // GB: 10^9 bytes
  double server_cpu_s_per_gb = 0;
  double client_cpu_us_per_message = 0;
  double server_cpu_us_per_message = 0;
  bool has_latency = false;
  LatencyUs latency;
};
[[nodiscard]] Summary summarize(const ContenderResult& result);

// Ratios to another contender, round by round, then the median. 0 if there is none to compare with.
[[nodiscard]] double bandwidth_ratio(const ContenderResult& mine, const ContenderResult& other);
[[nodiscard]] double latency_ratio(const ContenderResult& mine, const ContenderResult& other);

// The plain TCP contender to compare `index` with, or null; also for that contender itself.
[[nodiscard]] const ContenderResult* tcp_beside(const std::vector<ContenderResult>& results,
                                                std::size_t index, TcpMode mode);

// What is the same for the whole run.
struct RunConditions {
  std::string weft_version;
  std::string client_kernel;
  std::string server_kernel;
  std::string cpu;
  std::size_t client_cores = 0;
  std::size_t server_cores = 0;
  std::string client_pin;  // "cpu 0", or "not pinned"
  std::string server_pin;
  std::string mode;  // "poll" or "sleep"
  std::string spin;  // of RDMA waits in sleep mode
  std::string tcp_congestion;
  std::string peer;
  double seconds = 0;
  double latency_seconds = 0;
  std::uint32_t rounds = 0;
  bool latency = true;
  bool bandwidth = true;
  double others_running = 0;  // threads of other programs ready to run, between tests: the median
};

struct RunResults {
  RunConditions conditions;
  std::vector<ContenderResult> contenders;
};

// How the latency of an operation is defined, in a few words.
[[nodiscard]] std::string_view latency_kind(Operation op);

}  // namespace weft::cli
