#include <nlohmann/json.hpp>

#include "weft/perf/perf_report.h"

namespace weft::cli {
namespace {

// The order of the members is for people who look at the file.
using Ordered = nlohmann::ordered_json;

Ordered number_or_null(bool known, double value) { return known ? Ordered(value) : Ordered(); }

Ordered latency_json(const ContenderResult& result, const Summary& s) {
  const auto value = [&](double us) { return number_or_null(s.has_latency, us); };
  return {{"p50", value(s.latency.p50)},         {"p90", value(s.latency.p90)},
          {"p99", value(s.latency.p99)},         {"p99.9", value(s.latency.p999)},
          {"max", value(s.latency.max)},         {"samples", s.latency.samples},
          {"kind", latency_kind(result.spec.op)}};
}

Ordered rounds_json(const ContenderResult& result) {
  Ordered rounds = Ordered::array();
  for (const RoundResult& round : result.rounds) {
    rounds.push_back(
        {{"bandwidth_bytes_per_s", number_or_null(round.has_bandwidth, round.bytes_per_s)},
         {"messages_per_s", number_or_null(round.has_bandwidth, round.messages_per_s)},
         {"messages", round.messages},
         {"client_cpu_s", round.client_cpu_s},
         {"server_cpu_s", round.server_cpu_s},
         {"latency_p50_us", number_or_null(round.has_latency, round.latency.p50)},
         {"latency_p99_us", number_or_null(round.has_latency, round.latency.p99)}});
  }
  return rounds;
}

// What was negotiated, which may differ from what was asked for.
void add_rdma_facts(const ContenderResult& result, Ordered& out) {
  out["markers"] = result.spec.markers;
  out["fpdu"] = name_of(result.spec.fpdu);
  out["path"] = {{"asked", name_of(result.spec.path)},
                 {"client", result.client.path},
                 {"server", result.server.path}};
  out["max_ulpdu_bytes"] = {{"client", result.client.max_ulpdu_bytes},
                            {"server", result.server.max_ulpdu_bytes}};
  out["mpa_revision"] = result.client.mpa_revision;
  out["inline_bytes"] = result.spec.inline_bytes;
}

void add_tcp_facts(const ContenderResult& result, Ordered& out) {
  const auto buffers = [](const LinkFacts& facts) {
    return Ordered{{"send", facts.send_buffer_bytes}, {"receive", facts.receive_buffer_bytes}};
  };
  out["tcp_mode"] = name_of(result.spec.tcp_mode);
  out["socket_buffer_bytes"] = {{"client", buffers(result.client)},
                                {"server", buffers(result.server)}};
}

void add_ratios(const RunResults& results, std::size_t index, Ordered& out) {
  const ContenderResult& mine = results.contenders[index];
  const ContenderResult* raw = tcp_beside(results.contenders, index, TcpMode::kRaw);
  const ContenderResult* copy = tcp_beside(results.contenders, index, TcpMode::kCopy);
  const auto put = [&](const char* name, const ContenderResult* other, auto ratio) {
    const double value = other == nullptr ? 0 : ratio(mine, *other);
    out[name] = value > 0 ? Ordered(value) : Ordered();
  };
  put("ratio_to_tcp", raw, bandwidth_ratio);
  put("ratio_to_tcp_copy", copy, bandwidth_ratio);
  put("latency_ratio_to_tcp", raw, latency_ratio);
}

Ordered contender_json(const RunResults& results, std::size_t index) {
  const ContenderResult& result = results.contenders[index];
  const TestSpec& spec = result.spec;
  const Summary s = summarize(result);
  const bool rdma = spec.transport == Transport::kRdma;
  const bool per_gb = s.has_bandwidth && spec.size != 0;
  Ordered out{
      {"transport", name_of(spec.transport)},
      {"op", name_of(spec.op)},
      {"size", spec.size},
      {"depth", spec.depth},
      {"crc", rdma && result.client.crc},
      {"bandwidth_bytes_per_s", number_or_null(s.has_bandwidth, s.bytes_per_s)},
      {"messages_per_s", number_or_null(s.has_bandwidth, s.messages_per_s)},
      {"latency_us", latency_json(result, s)},
      {"cpu_s_per_gb",
       {{"client", number_or_null(per_gb, s.client_cpu_s_per_gb)},
        {"server", number_or_null(per_gb, s.server_cpu_s_per_gb)}}},
      {"cpu_us_per_message",
       {{"client", number_or_null(s.has_bandwidth, s.client_cpu_us_per_message)},
        {"server", number_or_null(s.has_bandwidth, s.server_cpu_us_per_message)}}},
      {"bandwidth_min_bytes_per_s", number_or_null(s.has_bandwidth, s.bytes_per_s_min)},
      {"bandwidth_max_bytes_per_s", number_or_null(s.has_bandwidth, s.bytes_per_s_max)},
      {"batch", spec.batch},
      {"connections", spec.connections},
      {"mode", spec.sleep ? "sleep" : "poll"},
      {"congestion", {{"client", result.client.congestion}, {"server", result.server.congestion}}},
      {"verified_bytes", result.verified_bytes},
      {"verified_messages", result.verified_messages}};
  add_ratios(results, index, out);
  rdma ? add_rdma_facts(result, out) : add_tcp_facts(result, out);
  out["idle_connections"] = spec.idle;
  if (spec.idle != 0) {
    out["idle_bytes_per_connection"] = {{"client", result.client.idle_bytes},
                                        {"server", result.server.idle_bytes}};
  }
  out["rounds"] = rounds_json(result);
  return out;
}

Ordered conditions_json(const RunConditions& c) {
  return {
      {"client", {{"kernel", c.client_kernel}, {"cores", c.client_cores}, {"pin", c.client_pin}}},
      {"server", {{"kernel", c.server_kernel}, {"cores", c.server_cores}, {"pin", c.server_pin}}},
      {"cpu", c.cpu},
      {"peer", c.peer},
      {"mode", c.mode},
      {"spin", c.spin},
      {"tcp_congestion", c.tcp_congestion},
      {"rounds", c.rounds},
      {"seconds", c.seconds},
      {"latency_seconds", c.latency_seconds},
      {"others_running", c.others_running}};
}

}  // namespace

std::string report_json(const RunResults& results) {
  Ordered list = Ordered::array();
  for (std::size_t i = 0; i < results.contenders.size(); ++i) {
    list.push_back(contender_json(results, i));
  }
  const Ordered document{{"weft", results.conditions.weft_version},
                         {"conditions", conditions_json(results.conditions)},
                         {"results", std::move(list)}};
  return document.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace weft::cli
