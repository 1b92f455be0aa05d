#include "weft/perf/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "weft/common/message.h"

namespace weft::cli {
namespace {

constexpr std::array<std::string_view, 2> kTransports = {"rdma", "tcp"};
constexpr std::array<std::string_view, 7> kOperations = {
    "write", "read", "send", "write-imm", "fetch-add", "cmp-swap", "connect"};
constexpr std::array<std::string_view, 2> kTcpModes = {"raw", "copy"};
constexpr std::array<std::string_view, 3> kPaths = {"auto", "tcp", "ring"};
constexpr std::array<std::string_view, 3> kPhases = {"verify", "bandwidth", "latency"};

template <class Enum, std::size_t N>
Outcome<Enum> find_name(const std::array<std::string_view, N>& names, std::string_view text,
                        std::string_view what) {
  const auto at = std::ranges::find(names, text);
  if (at != names.end()) return static_cast<Enum>(at - names.begin());
  std::string legal;
  for (std::size_t i = 0; i < N; ++i) {
    legal += fmt::format("{}{}", i == 0 ? "" : i + 1 == N ? " or " : ", ", names[i]);
  }
  const std::string suggestion = did_you_mean(text, legal);
  return usage_error(fmt::format("'{}' is not {}; it can be {}{}{}", text, what, legal,
                                 suggestion.empty() ? "" : "; ", suggestion));
}

std::uint64_t round_up_64(std::uint64_t n) { return (n + 63) / 64 * 64; }

std::uint32_t clamp_u32(std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  return static_cast<std::uint32_t>(std::clamp(value, low, high));
}

// The contender of one combination, with what does not apply to it set to fixed values, so that
// combinations that mean the same are equal.
TestSpec normalized(TestSpec spec) {
  if (spec.transport == Transport::kTcp) {
    if (spec.op != Operation::kConnect) spec.op = Operation::kSend;
    spec.crc = false;
    spec.markers = false;
    spec.fpdu = FpduPolicy::kAuto;
    spec.path = PathMode::kTcp;
    spec.batch = 1;
    spec.inline_bytes = 0;
    if (spec.op != Operation::kConnect) spec.depth = 1;
  } else {
    spec.tcp_mode = TcpMode::kRaw;
  }
  if (is_atomic(spec.op)) spec.size = 8;
  if (spec.op == Operation::kConnect) {
    spec.size = 0;
    spec.batch = 1;
    spec.connections = 1;
    spec.tcp_mode = TcpMode::kRaw;
    spec.depth = std::min<std::uint32_t>(spec.depth, 16);
  }
  return spec;
}

// Replaces each spec by one copy per value, in the order of the values.
template <class T, class Set>
void expand(std::vector<TestSpec>& specs, const std::vector<T>& values, Set set) {
  std::vector<TestSpec> out;
  for (const TestSpec& spec : specs) {
    for (const T& value : values) {
      out.push_back(spec);
      set(out.back(), value);
    }
  }
  specs = std::move(out);
}

// Every combination for one size and number of connections: they take turns within a round.
std::vector<TestSpec> combinations(const PlanRequest& request, TestSpec base) {
  base.sleep = request.sleep;
  base.inline_bytes = request.inline_bytes;
  base.tcp_congestion = request.tcp_congestion;
  std::vector<TestSpec> specs{base};
  using U64 = std::uint64_t;
  expand(specs, request.depths,
         [](TestSpec& s, U64 v) { s.depth = static_cast<std::uint32_t>(v); });
  expand(specs, request.batches,
         [](TestSpec& s, U64 v) { s.batch = static_cast<std::uint32_t>(v); });
  expand(specs, request.idle, [](TestSpec& s, U64 v) { s.idle = static_cast<std::uint32_t>(v); });
  expand(specs, request.transports, [](TestSpec& s, Transport v) { s.transport = v; });
  expand(specs, request.ops, [](TestSpec& s, Operation v) { s.op = v; });
  expand(specs, request.crc, [](TestSpec& s, bool v) { s.crc = v; });
  expand(specs, request.markers, [](TestSpec& s, bool v) { s.markers = v; });
  expand(specs, request.fpdu, [](TestSpec& s, FpduPolicy v) { s.fpdu = v; });
  expand(specs, request.path, [](TestSpec& s, PathMode v) { s.path = v; });
  expand(specs, request.tcp_modes, [](TestSpec& s, TcpMode v) { s.tcp_mode = v; });
  // In a sweep of both, batches deeper than the queue make no sense; alone, they are an error.
  if (request.depths.size() > 1 || request.batches.size() > 1) {
    std::erase_if(specs, [](const TestSpec& s) { return s.batch > s.depth; });
  }
  if (request.ring_at_first_depth) {
    std::erase_if(specs, [&request](const TestSpec& s) {
      return s.path == PathMode::kRing && s.depth != request.depths.front();
    });
  }
  return specs;
}

// Adds the contenders of one group, and their rounds. Combinations that mean the same run once.
void add_group(const PlanRequest& request, const std::vector<TestSpec>& specs, Plan& plan) {
  const std::size_t begin = plan.contenders.size();
  for (const TestSpec& spec : specs) {
    const TestSpec contender = normalized(spec);
    if (std::ranges::find(plan.contenders, contender) == plan.contenders.end()) {
      plan.contenders.push_back(contender);
    }
  }
  if (!request.bandwidth && !request.latency) return;
  for (std::uint32_t round = 0; round < request.rounds; ++round) {
    for (std::size_t i = begin; i < plan.contenders.size(); ++i) {
      plan.steps.push_back({i, round, false});
    }
  }
}

// The verified pass: each contender once, before anything is timed.
std::vector<Step> verified_pass(const Plan& plan) {
  std::vector<Step> steps;
  for (std::size_t i = 0; i < plan.contenders.size(); ++i) {
    if (plan.contenders[i].op != Operation::kConnect) steps.push_back({i, 0, true});
  }
  return steps;
}

double estimate_seconds(const PlanRequest& request, const Plan& plan) {
  constexpr double kSetUp = 0.02;
  constexpr double kPerIdle = 0.001;
  double total = 0;
  for (const Step& step : plan.steps) {
    total += kSetUp + kPerIdle * plan.contenders[step.contender].idle;
    if (step.verify) {
      total += request.verify_seconds;
      continue;
    }
    if (request.bandwidth) total += request.seconds + request.warmup_seconds;
    if (request.latency) total += request.latency_seconds;
  }
  return total;
}

}  // namespace

std::string_view name_of(Transport t) { return kTransports[static_cast<std::size_t>(t)]; }
std::string_view name_of(Operation op) { return kOperations[static_cast<std::size_t>(op)]; }
std::string_view name_of(TcpMode mode) { return kTcpModes[static_cast<std::size_t>(mode)]; }
std::string_view name_of(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }

std::string_view name_of(FpduPolicy policy) {
  switch (policy) {
    case FpduPolicy::kAuto: return "auto";
    case FpduPolicy::kMss: return "mss";
    case FpduPolicy::kCapped: return "16k";
    case FpduPolicy::kLarge: return "64k";
  }
  return "auto";
}

std::string_view name_of(PathMode path) { return kPaths[static_cast<std::size_t>(path)]; }

Outcome<Transport> parse_transport(std::string_view text) {
  return find_name<Transport>(kTransports, text, "a transport");
}
Outcome<Operation> parse_operation(std::string_view text) {
  return find_name<Operation>(kOperations, text, "an operation");
}
Outcome<TcpMode> parse_tcp_mode(std::string_view text) {
  return find_name<TcpMode>(kTcpModes, text, "a way to receive over TCP");
}
Outcome<Phase> parse_phase(std::string_view text) {
  return find_name<Phase>(kPhases, text, "a phase");
}
Outcome<PathMode> parse_path(std::string_view text) {
  return find_name<PathMode>(kPaths, text, "a path");
}
Outcome<FpduPolicy> parse_fpdu(std::string_view text) {
  for (const auto policy :
       {FpduPolicy::kAuto, FpduPolicy::kMss, FpduPolicy::kCapped, FpduPolicy::kLarge}) {
    if (text == name_of(policy)) return policy;
  }
  if (text == "capped") return FpduPolicy::kCapped;
  if (text == "large") return FpduPolicy::kLarge;
  return usage_error(
      fmt::format("'{}' is not an FPDU size; it can be auto, mss, 16k or 64k", text));
}

Layout layout_of(const TestSpec& spec) {
  using namespace perf_limits;
  Layout layout;
  layout.stride = round_up_64(std::max<std::uint64_t>(spec.size, 64));
  const std::uint64_t share = kVerifiedBytes / std::max<std::uint32_t>(spec.connections, 1);
  const std::uint64_t places = (spec.verify ? share : kCycledBytes) / layout.stride;
  const std::uint32_t most = std::max<std::uint32_t>(spec.depth, 2);
  layout.slots = clamp_u32(places, spec.verify ? 2 : 1, spec.verify ? most : spec.depth);
  if (spec.verify) {
    layout.receives = layout.slots;
    layout.window = std::min(spec.depth, layout.credits());
    return layout;
  }
  // Enough that the sender hardly ever waits for credits, and few enough for many connections.
  const std::uint64_t cap =
      std::clamp<std::uint64_t>(65536 / std::max(spec.connections, 1U), 16, 8192);
  layout.receives = clamp_u32(std::uint64_t{4} * spec.depth, 16, cap);
  layout.window = spec.depth;
  return layout;
}

Outcome<void> check(const TestSpec& spec) {
  using namespace perf_limits;
  const auto within = [](std::uint64_t value, std::uint64_t low, std::uint64_t high) {
    return value >= low && value <= high;
  };
  if (spec.op != Operation::kConnect && !within(spec.size, 1, kMessageBytes)) {
    return usage_error(fmt::format("size {} is outside 1 to {} bytes", spec.size, kMessageBytes));
  }
  if (!within(spec.depth, 1, kDepth)) {
    return usage_error(fmt::format("depth {} is outside 1 to {}", spec.depth, kDepth));
  }
  if (!within(spec.batch, 1, spec.depth)) {
    return usage_error(
        fmt::format("batch {} is outside 1 to the depth, {}", spec.batch, spec.depth));
  }
  if (!within(spec.connections, 1, kConnections)) {
    return usage_error(
        fmt::format("connections {} is outside 1 to {}", spec.connections, kConnections));
  }
  if (spec.idle > kIdle) {
    return usage_error(fmt::format("idle {} is over {}", spec.idle, kIdle));
  }
  if (spec.inline_bytes > kInlineBytes) {
    return usage_error(fmt::format("inline {} is over {}", spec.inline_bytes, kInlineBytes));
  }
  if (layout_of(spec).link_bytes() * spec.connections > kBufferBytes) {
    return usage_error(fmt::format("{} connections of {} bytes need more than {} bytes of memory",
                                   spec.connections, spec.size, kBufferBytes));
  }
  return {};
}

Outcome<Plan> make_plan(const PlanRequest& request) {
  Plan plan;
  for (const std::uint64_t size : request.sizes) {
    for (const std::uint64_t connections : request.connections) {
      TestSpec base;
      base.size = size;
      base.connections = static_cast<std::uint32_t>(connections);
      add_group(request, combinations(request, base), plan);
    }
  }
  if (plan.contenders.empty()) return usage_error("each batch is larger than each depth");
  for (const TestSpec& spec : plan.contenders) {
    if (auto ok = check(spec); !ok) return tl::unexpected(ok.error());
  }
  if (request.verify) {
    const std::vector<Step> first = verified_pass(plan);
    plan.steps.insert(plan.steps.begin(), first.begin(), first.end());
  }
  plan.estimated_seconds = estimate_seconds(request, plan);
  return plan;
}

PhaseLimits limits_of(const PlanRequest& request, const TestSpec& spec, Phase phase) {
  constexpr std::uint64_t kLatencySamples = 1'000'000;
  constexpr std::uint64_t kSetUps = 5000;  // keeps local ports in TIME_WAIT within their range
  constexpr double kNoTime = perf_limits::kPhaseSeconds;
  PhaseLimits limits;
  switch (phase) {
    case Phase::kVerify: limits.seconds = request.verify_seconds; break;
    case Phase::kBandwidth:
      limits = {request.seconds, request.warmup_seconds, request.iterations};
      if (request.bytes != 0 && spec.size != 0) {
        limits.messages = std::max<std::uint64_t>(request.bytes / spec.size, 1);
      }
      break;
    case Phase::kLatency:
      limits = {request.latency_seconds, request.warmup_seconds / 5, kLatencySamples};
      if (request.iterations != 0) limits.messages = std::min(request.iterations, kLatencySamples);
      break;
  }
  const bool counted =
      request.iterations != 0 || (request.bytes != 0 && phase == Phase::kBandwidth);
  if (counted && phase != Phase::kVerify) limits.seconds = kNoTime;
  if (spec.op == Operation::kConnect) {
    limits.warmup_seconds = 0;
    limits.messages = limits.messages == 0 ? kSetUps : std::min(limits.messages, kSetUps);
  }
  return limits;
}

int tcp_counterpart(const std::vector<TestSpec>& contenders, std::size_t contender, TcpMode mode) {
  const TestSpec& mine = contenders[contender];
  int fallback = -1;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const TestSpec& other = contenders[i];
    const bool set_up = mine.op == Operation::kConnect;
    if (other.transport != Transport::kTcp || other.tcp_mode != mode || other.size != mine.size ||
        other.connections != mine.connections || (other.op == Operation::kConnect) != set_up) {
      continue;
    }
    if (other.idle == mine.idle) return static_cast<int>(i);
    if (fallback < 0) fallback = static_cast<int>(i);
  }
  return fallback;
}

}  // namespace weft::cli
