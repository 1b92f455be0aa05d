// What `weft perf` runs: the contenders, in which order, for how long.
//
// A contender is one combination of transport, operation, size and so on. Contenders of one size
// take turns within each round, so that what disturbs the machine disturbs them alike. Pure values.
#pragma once

#include <weft/config.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

enum class Transport : std::uint8_t { kRdma, kTcp };
enum class Operation : std::uint8_t {
  kWrite,
  kRead,
  kSend,
  kWriteImm,
  kFetchAdd,
  kCmpSwap,
  kConnect,  // connection set-up
};
enum class TcpMode : std::uint8_t {
  kRaw,   // the receiver reads each message into one buffer
  kCopy,  // ... and then copies it to its place
};
enum class Phase : std::uint8_t { kVerify, kBandwidth, kLatency };

[[nodiscard]] std::string_view name_of(Transport transport);
[[nodiscard]] std::string_view name_of(Operation operation);
[[nodiscard]] std::string_view name_of(TcpMode mode);
[[nodiscard]] std::string_view name_of(Phase phase);
[[nodiscard]] std::string_view name_of(FpduPolicy policy);
[[nodiscard]] std::string_view name_of(PathMode path);
// Each fails with the list of legal names.
[[nodiscard]] Outcome<Transport> parse_transport(std::string_view text);
[[nodiscard]] Outcome<Operation> parse_operation(std::string_view text);
[[nodiscard]] Outcome<TcpMode> parse_tcp_mode(std::string_view text);
[[nodiscard]] Outcome<Phase> parse_phase(std::string_view text);
[[nodiscard]] Outcome<FpduPolicy> parse_fpdu(std::string_view text);
[[nodiscard]] Outcome<PathMode> parse_path(std::string_view text);

[[nodiscard]] constexpr bool is_atomic(Operation op) {
  return op == Operation::kFetchAdd || op == Operation::kCmpSwap;
}
// The target's program posts a receive for each message.
[[nodiscard]] constexpr bool takes_receives(Operation op) {
  return op == Operation::kSend || op == Operation::kWriteImm;
}
// The requester waits for an answer, so that its own completion is the end of the operation.
[[nodiscard]] constexpr bool is_answered(Operation op) {
  return op == Operation::kRead || is_atomic(op);
}

// Everything both sides must agree on for one test. Sent over the control connection.
struct TestSpec {
  Transport transport = Transport::kRdma;
  Operation op = Operation::kWrite;
  std::uint64_t size = 65536;  // bytes per message
  std::uint32_t depth = 128;   // messages outstanding at most, per connection
  std::uint32_t batch = 1;     // messages posted as one list
  std::uint32_t connections = 1;
  std::uint32_t idle = 0;          // further connections that carry nothing
  std::uint32_t inline_bytes = 0;  // messages up to this size are posted inline
  bool crc = true;
  bool markers = false;
  FpduPolicy fpdu = FpduPolicy::kAuto;
  PathMode path = PathMode::kTcp;
  TcpMode tcp_mode = TcpMode::kRaw;
  bool sleep = false;                   // both sides sleep while they wait, instead of polling
  bool verify = false;                  // every byte is checked; nothing is timed
  std::string tcp_congestion = "same";  // of plain TCP sockets: same as RDMA, keep, or a name

  bool operator==(const TestSpec&) const = default;
};

namespace perf_limits {
inline constexpr std::uint64_t kMessageBytes = 1U << 30U;
inline constexpr std::uint32_t kDepth = 8192;
inline constexpr std::uint32_t kConnections = 4096;
inline constexpr std::uint32_t kIdle = 20000;
inline constexpr std::uint32_t kInlineBytes = 1024;
inline constexpr std::uint32_t kRounds = 1000;
inline constexpr double kPhaseSeconds = 3600;
inline constexpr std::uint64_t kBufferBytes = std::uint64_t{4} << 30U;  // of one test, each side
inline constexpr std::uint64_t kCycledBytes = 64 * 1024;     // measured: reused, stays in cache
inline constexpr std::uint64_t kVerifiedBytes = 16U << 20U;  // verified: a place per message
}  // namespace perf_limits

// Where messages lie in the memory of a test: `slots` places per connection, used in turn.
struct Layout {
  std::uint64_t stride = 0;  // bytes from one place to the next, a multiple of 64
  std::uint32_t slots = 0;
  std::uint32_t window =
      0;  // messages outstanding at most: depth, or less where each needs its place
  std::uint32_t receives = 0;  // the target keeps posted, for operations that take them
  // Messages the sender may have on the way: one receive is kept for its notes.
  [[nodiscard]] std::uint32_t credits() const { return receives - 1; }
  [[nodiscard]] std::uint64_t link_bytes() const { return stride * slots; }
};
[[nodiscard]] Layout layout_of(const TestSpec& spec);

// Says what is wrong with a spec, wherever it comes from.
[[nodiscard]] Outcome<void> check(const TestSpec& spec);

// What the user asked for: every combination of the lists is a contender.
struct PlanRequest {
  std::vector<Transport> transports{Transport::kRdma};
  std::vector<Operation> ops{Operation::kWrite};
  std::vector<std::uint64_t> sizes{65536};
  std::vector<std::uint64_t> depths{128};
  std::vector<std::uint64_t> batches{1};
  std::vector<std::uint64_t> connections{1};
  std::vector<std::uint64_t> idle{0};
  std::vector<bool> crc{true};
  std::vector<bool> markers{false};
  std::vector<FpduPolicy> fpdu{FpduPolicy::kAuto};
  std::vector<PathMode> path{PathMode::kTcp};
  std::vector<TcpMode> tcp_modes{TcpMode::kRaw};
  bool ring_at_first_depth = false;  // of several depths, a ring is measured at the first only
  std::uint32_t inline_bytes = 0;
  bool sleep = false;
  std::string tcp_congestion = "same";

  std::uint32_t rounds = 3;
  bool verify = false;  // a verified pass goes first
  bool bandwidth = true;
  bool latency = true;
  double seconds = 0.5;  // of the bandwidth phase, per contender and round
  double latency_seconds = 0.125;
  double warmup_seconds = 0.05;
  double verify_seconds = 0.2;
  std::uint64_t iterations = 0;  // messages per phase instead of seconds; 0: seconds count
  std::uint64_t bytes = 0;       // bytes per bandwidth phase instead of seconds
};

// When a phase ends: at the time or at the count, whichever comes first.
struct PhaseLimits {
  double seconds = 0;
  double warmup_seconds = 0;
  std::uint64_t messages = 0;  // 0: no limit
};

struct Step {
  std::size_t contender = 0;  // index into Plan::contenders
  std::uint32_t round = 0;
  bool verify = false;
};

struct Plan {
  std::vector<TestSpec> contenders;  // in the order of the report
  std::vector<Step> steps;           // in the order of the run
  double estimated_seconds = 0;
};

[[nodiscard]] Outcome<Plan> make_plan(const PlanRequest& request);
[[nodiscard]] PhaseLimits limits_of(const PlanRequest& request, const TestSpec& spec, Phase phase);

// The index of the plain TCP contender that `contender` compares with, or -1.
[[nodiscard]] int tcp_counterpart(const std::vector<TestSpec>& contenders, std::size_t contender,
                                  TcpMode mode);

}  // namespace weft::cli
