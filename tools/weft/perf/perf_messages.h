// The bodies of the control messages of `weft perf`. docs/perf.md describes the conversation.
#pragma once

#include "weft/perf/control.h"
#include "weft/perf/plan.h"

namespace weft::cli {

[[nodiscard]] Json to_json(const TestSpec& spec);
// Fails on anything missing, unknown or out of range: the sender may be a stranger.
[[nodiscard]] Outcome<TestSpec> spec_from_json(const Json& object);

// What one side's sockets turned out to be, for the conditions of a report.
struct LinkFacts {
  std::string congestion;
  std::string path;           // RDMA only: what carried the messages at the end, "tcp" or "ring"
  int send_buffer_bytes = 0;  // plain TCP only; 0: unknown or left to the kernel
  int receive_buffer_bytes = 0;
  bool crc = false;  // of what carried them: a ring has none
  bool markers = false;
  std::uint32_t max_ulpdu_bytes = 0;  // RDMA only
  std::uint32_t mpa_revision = 0;
  double idle_bytes = 0;  // memory per idle connection
};
[[nodiscard]] Json to_json(const LinkFacts& facts);
[[nodiscard]] LinkFacts facts_from_json(const Json& object);

// What the server counted in one phase.
struct ServerReport {
  double cpu_s = 0;
  std::uint64_t messages = 0;
  std::uint64_t verified_bytes = 0;
};
[[nodiscard]] Json to_json(const ServerReport& report);
[[nodiscard]] ServerReport report_from_json(const Json& object);

}  // namespace weft::cli
