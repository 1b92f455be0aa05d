// The options of `weft perf`: what the user wrote, and what it means.
#pragma once

#include <weft/config.h>

#include <string>

#include "weft/common/common.h"
#include "weft/perf/plan.h"

namespace weft::cli {

inline constexpr std::uint16_t kPerfPort = 7471;
inline constexpr std::uint16_t kPingPort = 7472;

// Texts as written; an empty text means that the option was not given.
struct PerfOptions {
  CommonOptions common;
  std::string peer;
  bool self = false;
  bool server = false;
  std::string listen;
  bool once = false;
  bool ipv6 = false;
  std::string preset;
  std::string ops, sizes, sweep, depths, batches, connections, idle, transports;
  std::string crc, markers, fpdu, path, tcp_mode, inline_bytes;
  std::string duration, latency_duration, warmup, iterations, bytes, rounds;
  std::string mode, congestion, tcp_congestion;
  bool latency_only = false;
  bool bandwidth_only = false;
  bool verify = false;
  bool verify_only = false;
  bool json = false;
  bool csv = false;
  bool quiet = false;
  bool no_pin = false;
  std::string pin;
  int announce_fd = -1;
};

void add_perf_options(Arguments& command, PerfOptions& options);

// Fills what was not given from the preset. Fails on an unknown one.
[[nodiscard]] Outcome<void> apply_preset(PerfOptions& options);

// Sets what the options say about the configuration: congestion control.
[[nodiscard]] Outcome<void> apply_to_config(const PerfOptions& options, Config& config);

// What to run. Each failure names the option.
[[nodiscard]] Outcome<PlanRequest> make_request(const PerfOptions& options, const Config& config);

}  // namespace weft::cli
