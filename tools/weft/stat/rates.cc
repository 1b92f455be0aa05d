#include "weft/stat/rates.h"

namespace weft::cli {
namespace {

// A counter that went back belongs to another device of the same process: it started anew.
std::uint64_t grown(std::uint64_t before, std::uint64_t after) {
  return after >= before ? after - before : after;
}

std::optional<double> quotient(double a, double b) {
  if (b <= 0) return std::nullopt;
  return a / b;
}

struct DirectionCounters {
  const std::array<std::uint64_t, 16>& messages;
  std::uint64_t bytes, fpdus, calls, idle_calls;
};

DirectionCounters out_of(const Counters& c) {
  return {c.tx_messages, c.tx_bytes, c.tx_fpdus, c.tx_calls, c.tx_blocked};
}
DirectionCounters in_of(const Counters& c) {
  return {c.rx_messages, c.rx_bytes, c.rx_fpdus, c.rx_calls, c.rx_empty};
}

// How fast a counter grew, as a function of its two values.
auto per_second(double seconds) {
  return [seconds](std::uint64_t from, std::uint64_t to) {
    return static_cast<double>(grown(from, to)) / seconds;
  };
}

DirectionRates direction(const DirectionCounters& before, const DirectionCounters& after,
                         double seconds) {
  const auto rate = per_second(seconds);
  DirectionRates out;
  for (std::size_t i = 0; i < out.messages.size(); ++i) {
    out.messages[i] = rate(before.messages[i], after.messages[i]);
  }
  out.bytes = rate(before.bytes, after.bytes);
  out.fpdus = rate(before.fpdus, after.fpdus);
  out.calls = rate(before.calls, after.calls);
  out.idle_calls = rate(before.idle_calls, after.idle_calls);
  out.fpdus_per_call = quotient(out.fpdus, out.calls);
  out.bytes_per_call = quotient(out.bytes, out.calls);
  return out;
}

}  // namespace

Rates rates_between(const ProcessCounters& before, const ProcessCounters& after) {
  const Counters& a = before.counters;
  const Counters& b = after.counters;
  // A shorter age means a new device.
  const bool same = after.age_ns > before.age_ns;
  const std::int64_t ns = same ? after.age_ns - before.age_ns : after.age_ns;
  Rates out;
  out.seconds = static_cast<double>(ns > 0 ? ns : 1) / 1e9;
  const auto rate = per_second(out.seconds);
  out.out = direction(out_of(a), out_of(b), out.seconds);
  out.in = direction(in_of(a), in_of(b), out.seconds);
  out.polls = rate(a.polls, b.polls);
  out.empty_polls = rate(a.empty_polls, b.empty_polls);
  out.empty_share = quotient(out.empty_polls, out.polls);
  out.wakeups = rate(a.wakeups, b.wakeups);
  out.connections_opened = rate(a.connections_opened, b.connections_opened);
  out.connections_refused = rate(a.connections_refused, b.connections_refused);
  out.crc_errors = grown(a.crc_errors, b.crc_errors);
  out.terminates_sent = grown(a.terminates_sent, b.terminates_sent);
  out.terminates_received = grown(a.terminates_received, b.terminates_received);
  return out;
}

std::string_view opcode_name(std::size_t opcode) {
  static constexpr std::array<std::string_view, 12> kNames{
      "write",           "read request",    "read response",  "send",
      "send+invalidate", "send+event",      "send+inv+event", "terminate",
      "immediate",       "immediate+event", "atomic request", "atomic response"};
  return opcode < kNames.size() ? kNames[opcode] : std::string_view{};
}

}  // namespace weft::cli
