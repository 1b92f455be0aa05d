#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "weft/common/parse.h"
#include "weft/perf/perf_report.h"

namespace weft::cli {
namespace {

struct Row {
  const ContenderResult* result;
  Summary summary;
  const ContenderResult* tcp;
  const ContenderResult* tcp_copy;
};

struct Column {
  std::string title;
  bool left = false;
  std::function<std::string(const Row&)> cell;
};

bool is_rdma(const Row& row) { return row.result->spec.transport == Transport::kRdma; }

std::string number(bool known, double value, int decimals) {
  return known ? fmt::format("{:.{}f}", value, decimals) : "-";
}

// Three significant digits without an exponent.
std::string three_digits(bool known, double value) {
  return number(known, value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3);
}

std::string ratio_text(const Row& row, const ContenderResult* other,
                       double (*ratio)(const ContenderResult&, const ContenderResult&)) {
  if (other == nullptr || other == row.result) return "-";
  const double value = ratio(*row.result, *other);
  return value > 0 ? fmt::format("{:.{}f}x", value, value >= 9.995 ? 1 : 2) : "-";
}

std::string contender_name(const TestSpec& spec) {
  if (spec.transport == Transport::kRdma) return fmt::format("rdma {}", name_of(spec.op));
  if (spec.op == Operation::kConnect) return "tcp connect";
  return spec.tcp_mode == TcpMode::kCopy ? "tcp, then copy" : "tcp";
}

// Columns of what differs between contenders only where something does. Most of it means nothing to
// plain TCP.
template <class Get>
void add_if_varied(std::vector<Column>& columns, const std::vector<Row>& rows, std::string title,
                   bool tcp_too, Get get) {
  const auto applies = [tcp_too](const Row& row) { return tcp_too || is_rdma(row); };
  std::set<std::string> values;
  for (const Row& row : rows) {
    if (applies(row)) values.insert(get(row.result->spec));
  }
  if (values.size() < 2) return;
  columns.push_back({std::move(title), false, [get, applies](const Row& row) {
                       return applies(row) ? get(row.result->spec) : std::string("-");
                     }});
}

// Always shown: plain TCP has one message under way, RDMA as many as asked for.
void add_depth_column(std::vector<Column>& columns) {
  columns.push_back(
      {"depth", false, [](const Row& row) { return std::to_string(row.result->spec.depth); }});
}

void add_variation_columns(std::vector<Column>& columns, const std::vector<Row>& rows) {
  using S = const TestSpec&;
  const auto add = [&](const char* title, bool tcp_too, auto get) {
    add_if_varied(columns, rows, title, tcp_too, get);
  };
  add("batch", false, [](S s) { return std::to_string(s.batch); });
  add("conns", true, [](S s) { return std::to_string(s.connections); });
  add("idle", true, [](S s) { return std::to_string(s.idle); });
  add("CRC", false, [](S s) { return std::string(s.crc ? "on" : "off"); });
  add("markers", false, [](S s) { return std::string(s.markers ? "on" : "off"); });
  add("path", false, [](S s) { return std::string(name_of(s.path)); });
  add("FPDU", false, [](S s) { return std::string(name_of(s.fpdu)); });
}

// What both kinds of table have: rates beside those of TCP.
void add_ratio_columns(std::vector<Column>& columns, const std::vector<Row>& rows) {
  const bool rdma = std::ranges::any_of(rows, is_rdma);
  const bool tcp = std::ranges::any_of(rows, [](const Row& r) { return r.tcp != nullptr; });
  const bool copy = std::ranges::any_of(rows, [](const Row& r) { return r.tcp_copy != nullptr; });
  if (tcp && (rdma || copy)) {
    columns.push_back({"of tcp", false,
                       [](const Row& row) { return ratio_text(row, row.tcp, bandwidth_ratio); }});
  }
  if (copy && (rdma || tcp)) {
    columns.push_back({"of tcp+copy", false, [](const Row& row) {
                         return ratio_text(row, row.tcp_copy, bandwidth_ratio);
                       }});
  }
}

void add_bandwidth_columns(std::vector<Column>& columns, const std::vector<Row>& rows) {
  const auto known = [](const Row& row) {
    return row.summary.has_bandwidth && row.result->spec.size != 0;
  };
  columns.push_back({"GB/s", false, [known](const Row& row) {
                       return three_digits(known(row), row.summary.bytes_per_s / 1e9);
                     }});
  columns.push_back({"min..max", false, [known](const Row& row) {
                       if (!known(row)) return std::string("-");
                       return three_digits(true, row.summary.bytes_per_s_min / 1e9) + ".." +
                              three_digits(true, row.summary.bytes_per_s_max / 1e9);
                     }});
  columns.push_back({"messages/s", false, [](const Row& row) {
                       return row.summary.has_bandwidth ? format_si(row.summary.messages_per_s)
                                                        : std::string("-");
                     }});
  add_ratio_columns(columns, rows);
  columns.push_back({"CPU s/GB client", false, [known](const Row& row) {
                       return three_digits(known(row), row.summary.client_cpu_s_per_gb);
                     }});
  columns.push_back({"server", false, [known](const Row& row) {
                       return three_digits(known(row), row.summary.server_cpu_s_per_gb);
                     }});
}

// Connection set-up carries no bytes.
void add_set_up_columns(std::vector<Column>& columns, const std::vector<Row>& rows) {
  columns.push_back({"set-ups/s", false, [](const Row& row) {
                       return number(row.summary.has_bandwidth, row.summary.messages_per_s, 0);
                     }});
  add_ratio_columns(columns, rows);
  columns.push_back({"CPU us each, client", false, [](const Row& row) {
                       return three_digits(row.summary.has_bandwidth,
                                           row.summary.client_cpu_us_per_message);
                     }});
  columns.push_back({"server", false, [](const Row& row) {
                       return three_digits(row.summary.has_bandwidth,
                                           row.summary.server_cpu_us_per_message);
                     }});
}

void add_latency_columns(std::vector<Column>& columns, bool alone, bool with_ratio) {
  const auto add = [&](std::string title, double LatencyUs::*value) {
    columns.push_back({std::move(title), false, [value](const Row& row) {
                         return three_digits(row.summary.has_latency, row.summary.latency.*value);
                       }});
  };
  add("p50 us", &LatencyUs::p50);
  if (alone) add("p90 us", &LatencyUs::p90);
  add("p99 us", &LatencyUs::p99);
  if (alone) {
    add("p99.9 us", &LatencyUs::p999);
    add("max us", &LatencyUs::max);
  }
  if (with_ratio) {
    columns.push_back({"p50 of tcp", false,
                       [](const Row& row) { return ratio_text(row, row.tcp, latency_ratio); }});
  }
}

std::vector<Column> choose_columns(const RunResults& results, const std::vector<Row>& rows) {
  std::vector<Column> columns;
  columns.push_back({"size", false, [](const Row& row) {
                       return row.result->spec.size == 0 ? "-" : format_size(row.result->spec.size);
                     }});
  columns.push_back(
      {"contender", true, [](const Row& row) { return contender_name(row.result->spec); }});
  if (results.conditions.bandwidth) add_depth_column(columns);
  add_variation_columns(columns, rows);
  const bool set_ups = std::ranges::all_of(
      rows, [](const Row& r) { return r.result->spec.op == Operation::kConnect; });
  if (results.conditions.bandwidth) {
    set_ups ? add_set_up_columns(columns, rows) : add_bandwidth_columns(columns, rows);
  }
  const bool tcp = std::ranges::any_of(rows, [](const Row& r) { return r.tcp != nullptr; });
  const bool rdma = std::ranges::any_of(rows, is_rdma);
  if (results.conditions.latency) {
    add_latency_columns(columns, !results.conditions.bandwidth, tcp && rdma);
  }
  return columns;
}

std::string render(const std::vector<Column>& columns, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Column& column : columns) {
    std::size_t width = column.title.size();
    for (const Row& row : rows) width = std::max(width, column.cell(row).size());
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](auto text_of) {
    std::string text;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::string cell = text_of(columns[i]);
      text += columns[i].left ? fmt::format("{:<{}}  ", cell, widths[i])
                              : fmt::format("{:>{}}  ", cell, widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([](const Column& column) { return column.title; });
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (before != nullptr && before->result->spec.size != row.result->spec.size) out += "\n";
    line([&](const Column& column) { return column.cell(row); });
    before = &row;
  }
  return out;
}

// "reno (client), reno (server)", or both if they differ.
std::string sides(const std::string& client, const std::string& server) {
  if (client == server) return client.empty() ? "unknown" : client;
  return fmt::format("{} (client), {} (server)", client, server);
}

std::string rdma_conditions(const std::vector<Row>& rows) {
  std::set<std::string> congestion;
  std::set<std::string> framing;
  for (const Row& row : rows) {
    if (!is_rdma(row)) continue;
    const LinkFacts& facts = row.result->client;
    congestion.insert(sides(facts.congestion, row.result->server.congestion));
    const bool ring = facts.path == "ring";
    framing.insert(fmt::format("over {}: CRC {}, markers {}, FPDU {} (up to {} bytes)",
                               ring ? "a ring of shared memory" : "TCP", facts.crc ? "on" : "off",
                               facts.markers && !ring ? "on" : "off",
                               name_of(row.result->spec.fpdu), facts.max_ulpdu_bytes));
  }
  if (congestion.empty()) return "";
  return fmt::format("  rdma   congestion control {}; {}\n", fmt::join(congestion, " / "),
                     fmt::join(framing, " / "));
}

std::string tcp_conditions(const RunConditions& conditions, const std::vector<Row>& rows) {
  std::set<std::string> congestion;
  int send_min = 0, send_max = 0, receive_min = 0, receive_max = 0;
  const auto widen = [](int value, int& low, int& high) {
    if (value == 0) return;
    low = low == 0 ? value : std::min(low, value);
    high = std::max(high, value);
  };
  for (const Row& row : rows) {
    if (is_rdma(row)) continue;
    congestion.insert(sides(row.result->client.congestion, row.result->server.congestion));
    widen(row.result->client.send_buffer_bytes, send_min, send_max);
    widen(row.result->server.receive_buffer_bytes, receive_min, receive_max);
  }
  if (congestion.empty()) return "";
  return fmt::format(
      "  tcp    congestion control {} ({}); buffers: send {}..{}, receive {}..{} bytes\n",
      fmt::join(congestion, " / "),
      conditions.tcp_congestion == "same" ? "the same as RDMA" : conditions.tcp_congestion,
      send_min, send_max, receive_min, receive_max);
}

std::string host_conditions(const RunConditions& c) {
  std::string out = fmt::format("  client {}, {} cores{}, {}\n", c.client_kernel, c.client_cores,
                                c.cpu.empty() ? "" : ", " + c.cpu, c.client_pin);
  out += fmt::format("  server {}, {} cores, {} ({})\n", c.server_kernel, c.server_cores,
                     c.server_pin, c.peer);
  out += c.mode == "poll"
             ? "  wait   both sides poll\n"
             : fmt::format("  wait   both sides sleep (RDMA spins {} first)\n", c.spin);
  if (c.others_running >= 1) {
    out += fmt::format(
        "  note   this machine was busy: {:.0f} other threads ready to run at a time; "
        "do not trust these figures\n",
        c.others_running);
  }
  return out;
}

// The verified pass in one or two lines: what was checked, where.
std::string verified_text(const RunResults& results) {
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
  std::size_t contenders = 0;
  for (const ContenderResult& result : results.contenders) {
    bytes += result.verified_bytes;
    messages += result.verified_messages;
    contenders += result.verified_messages != 0 ? 1 : 0;
  }
  if (contenders == 0) return "";
  return fmt::format(
      "Verified: {} contenders, {} messages, {}B, every byte compared at its destination: all "
      "right\n\n",
      contenders, messages, format_si(static_cast<double>(bytes)));
}

std::string idle_text(const std::vector<Row>& rows) {
  std::string out;
  for (const Row& row : rows) {
    const TestSpec& spec = row.result->spec;
    if (spec.idle == 0 || !is_rdma(row)) continue;
    out += fmt::format(
        "{} beside {} idle connections: {:.0f} bytes per idle connection (client), "
        "{:.0f} (server)\n",
        contender_name(spec), spec.idle, row.result->client.idle_bytes,
        row.result->server.idle_bytes);
  }
  return out.empty() ? out : "\n" + out;
}

std::string footnotes(const std::vector<Row>& rows, const RunConditions& conditions) {
  std::string out = "\n";
  if (conditions.bandwidth) {
    out += "Depth: messages outstanding while bandwidth is measured; plain TCP has one.\n";
  }
  if (!conditions.latency) return out;
  std::set<std::string_view> kinds;
  for (const Row& row : rows) kinds.insert(latency_kind(row.result->spec.op));
  return out +
         fmt::format("Latency: one message at a time, {}.\n",
                     kinds.size() == 1
                         ? std::string(*kinds.begin())
                         : "half the round trip; of Reads and atomics, request to completion");
}

}  // namespace

std::string report_table(const RunResults& results) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < results.contenders.size(); ++i) {
    rows.push_back({&results.contenders[i], summarize(results.contenders[i]),
                    tcp_beside(results.contenders, i, TcpMode::kRaw),
                    tcp_beside(results.contenders, i, TcpMode::kCopy)});
  }
  const RunConditions& c = results.conditions;
  std::string out = fmt::format("weft perf {}\n", c.weft_version);
  out += host_conditions(c) + rdma_conditions(rows) + tcp_conditions(c, rows) + "\n";
  out += verified_text(results);
  if (!c.bandwidth && !c.latency) return out;
  out += c.rounds == 1 ? "One round\n\n"
                       : fmt::format("Medians of {} interleaved rounds\n\n", c.rounds);
  out += render(choose_columns(results, rows), rows);
  out += footnotes(rows, c) + idle_text(rows);
  return out;
}

}  // namespace weft::cli
