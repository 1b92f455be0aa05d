#include <fmt/format.h>

#include "weft/perf/perf_report.h"

namespace weft::cli {
namespace {

std::string number_or_empty(bool known, double value) {
  return known ? fmt::format("{:.6g}", value) : "";
}

std::string ratio(const ContenderResult& mine, const ContenderResult* other,
                  double (*compute)(const ContenderResult&, const ContenderResult&)) {
  const double value = other == nullptr ? 0 : compute(mine, *other);
  return number_or_empty(value > 0, value);
}

}  // namespace

std::string report_csv(const RunResults& results) {
  std::string out =
      "transport,op,size,depth,batch,connections,idle,crc,markers,fpdu,tcp_mode,mode,"
      "bandwidth_bytes_per_s,bandwidth_min,bandwidth_max,messages_per_s,"
      "latency_p50_us,latency_p90_us,latency_p99_us,latency_p99.9_us,latency_max_us,"
      "client_cpu_s_per_gb,server_cpu_s_per_gb,ratio_to_tcp,ratio_to_tcp_copy,"
      "latency_ratio_to_tcp,client_congestion,server_congestion,verified_bytes,path\n";
  for (std::size_t i = 0; i < results.contenders.size(); ++i) {
    const ContenderResult& result = results.contenders[i];
    const TestSpec& spec = result.spec;
    const Summary s = summarize(result);
    const bool rdma = spec.transport == Transport::kRdma;
    const ContenderResult* raw = tcp_beside(results.contenders, i, TcpMode::kRaw);
    const ContenderResult* copy = tcp_beside(results.contenders, i, TcpMode::kCopy);
    const auto rate = [&](double v) { return number_or_empty(s.has_bandwidth, v); };
    const auto time = [&](double v) { return number_or_empty(s.has_latency, v); };
    out += fmt::format("{},{},{},{},{},{},{},", name_of(spec.transport), name_of(spec.op),
                       spec.size, spec.depth, spec.batch, spec.connections, spec.idle);
    out += fmt::format("{},{},{},{},{},", rdma && result.client.crc ? "on" : "off",
                       rdma && spec.markers ? "on" : "off", rdma ? name_of(spec.fpdu) : "",
                       rdma ? "" : name_of(spec.tcp_mode), spec.sleep ? "sleep" : "poll");
    out += fmt::format("{},{},{},{},", rate(s.bytes_per_s), rate(s.bytes_per_s_min),
                       rate(s.bytes_per_s_max), rate(s.messages_per_s));
    out += fmt::format("{},{},{},{},{},", time(s.latency.p50), time(s.latency.p90),
                       time(s.latency.p99), time(s.latency.p999), time(s.latency.max));
    out += fmt::format("{},{},{},{},{},", rate(s.client_cpu_s_per_gb), rate(s.server_cpu_s_per_gb),
                       ratio(result, raw, bandwidth_ratio), ratio(result, copy, bandwidth_ratio),
                       ratio(result, raw, latency_ratio));
    out += fmt::format("{},{},{},{}\n", result.client.congestion, result.server.congestion,
                       result.verified_bytes, rdma ? result.client.path : "tcp");
  }
  return out;
}

}  // namespace weft::cli
