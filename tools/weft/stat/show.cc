#include "weft/stat/show.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "weft/common/parse.h"

namespace weft::cli {
namespace {

using Ordered = nlohmann::ordered_json;

// format_si is for rates of any size; below one event per second it would print noise.
std::string number(double value) {
  std::string text = value < 0.005 ? "0" : format_si(value);
  if (text.back() == ' ') text.pop_back();
  return text;
}
std::string number(const std::optional<double>& value) { return value ? number(*value) : "-"; }

void add_line(std::string& out, std::string_view name, const std::string& left,
              const std::string& right) {
  out += fmt::format("  {:<18} {:>12} {:>12}\n", name, left, right);
}

std::string plural(std::uint32_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void add_operations(std::string& out, const Rates& r) {
  for (std::size_t i = 0; i < r.out.messages.size(); ++i) {
    if (opcode_name(i).empty() || (r.out.messages[i] <= 0 && r.in.messages[i] <= 0)) continue;
    add_line(out, opcode_name(i), number(r.out.messages[i]), number(r.in.messages[i]));
  }
}

void add_rare(std::string& out, const Rates& r) {
  if (r.connections_opened > 0 || r.connections_refused > 0) {
    out += fmt::format("  set-ups {}/s, failed {}/s\n", number(r.connections_opened),
                       number(r.connections_refused));
  }
  if (r.crc_errors + r.terminates_sent + r.terminates_received != 0) {
    out += fmt::format("  bad CRCs {}, Terminates sent {}, received {}\n", r.crc_errors,
                       r.terminates_sent, r.terminates_received);
  }
}

Ordered optional_json(const std::optional<double>& value) {
  return value ? Ordered(*value) : Ordered();
}

Ordered direction_json(const DirectionRates& d, const char* idle_name) {
  Ordered operations = Ordered::object();
  for (std::size_t i = 0; i < d.messages.size(); ++i) {
    if (!opcode_name(i).empty()) operations[std::string(opcode_name(i))] = d.messages[i];
  }
  return {{"operations_per_s", operations},
          {"bytes_per_s", d.bytes},
          {"fpdus_per_s", d.fpdus},
          {"calls_per_s", d.calls},
          {idle_name, d.idle_calls},
          {"fpdus_per_call", optional_json(d.fpdus_per_call)},
          {"bytes_per_call", optional_json(d.bytes_per_call)}};
}

static_assert(sizeof(Counters) == (18 + 2 * 16) * sizeof(std::uint64_t),
              "counters_json() must show the new counter, and Rates perhaps");

Ordered counters_json(const Counters& c) {
  return {{"tx_bytes", c.tx_bytes},
          {"rx_bytes", c.rx_bytes},
          {"tx_fpdus", c.tx_fpdus},
          {"rx_fpdus", c.rx_fpdus},
          {"tx_calls", c.tx_calls},
          {"rx_calls", c.rx_calls},
          {"tx_blocked", c.tx_blocked},
          {"rx_empty", c.rx_empty},
          {"tx_messages", c.tx_messages},
          {"rx_messages", c.rx_messages},
          {"polls", c.polls},
          {"empty_polls", c.empty_polls},
          {"wakeups", c.wakeups},
          {"crc_errors", c.crc_errors},
          {"terminates_sent", c.terminates_sent},
          {"terminates_received", c.terminates_received},
          {"connections_opened", c.connections_opened},
          {"connections_refused", c.connections_refused},
          {"small_segments", c.small_segments},
          {"messages_dropped", c.messages_dropped}};
}

}  // namespace

std::string stat_text(const StatHeading& heading, const ProcessCounters& now, const Rates& r) {
  std::string out = fmt::format("{} {}: {} ({} by a ring), {}, {} {:.2f} s\n", heading.pid,
                                heading.name, plural(now.connections, "connection"), now.rings,
                                plural(now.queue_pairs, "queue pair"),
                                heading.totals ? "averages over" : "last", r.seconds);
  add_line(out, "per second", "out", "in");
  add_operations(out, r);
  add_line(out, "bytes", number(r.out.bytes), number(r.in.bytes));
  add_line(out, "FPDUs", number(r.out.fpdus), number(r.in.fpdus));
  add_line(out, "system calls", number(r.out.calls), number(r.in.calls));
  add_line(out, "... idle", number(r.out.idle_calls), number(r.in.idle_calls));
  add_line(out, "FPDUs per call", number(r.out.fpdus_per_call), number(r.in.fpdus_per_call));
  add_line(out, "bytes per call", number(r.out.bytes_per_call), number(r.in.bytes_per_call));
  out += fmt::format("  polls {}/s", number(r.polls));
  if (r.empty_share) out += fmt::format(", {:.1f} % found nothing", *r.empty_share * 100);
  out += fmt::format("; wake-ups {}/s\n", number(r.wakeups));
  add_rare(out, r);
  return out + "\n";
}

std::string stat_json(const StatHeading& heading, const ProcessCounters& now, const Rates& r) {
  Ordered line{{"pid", heading.pid},
               {"program", heading.name},
               {"seconds", r.seconds},
               {"connections", now.connections},
               {"rings", now.rings},
               {"queue_pairs", now.queue_pairs},
               {"out", direction_json(r.out, "blocked_calls_per_s")},
               {"in", direction_json(r.in, "empty_calls_per_s")},
               {"polls_per_s", r.polls},
               {"empty_polls_per_s", r.empty_polls},
               {"empty_poll_share", optional_json(r.empty_share)},
               {"wakeups_per_s", r.wakeups},
               {"crc_errors", r.crc_errors},
               {"terminates_sent", r.terminates_sent},
               {"terminates_received", r.terminates_received}};
  if (heading.totals) line["totals"] = counters_json(now.counters);
  return line.dump(-1, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace weft::cli
