#include "weft/perf/conditions.h"

#include <thread>

#include "weft/common/common.h"
#include "weft/common/sysinfo.h"

namespace weft::cli {

Json describe_server(const std::string& pin) {
  return Json{{"kernel", kernel_text()},
              {"cores", std::uint64_t{std::thread::hardware_concurrency()}},
              {"pin", pin}};
}

RunConditions make_conditions(const ClientSetup& setup, const Config& config, const Json& welcome) {
  RunConditions c;
  c.weft_version = version();
  c.client_kernel = kernel_text();
  c.server_kernel = get_text(welcome, "kernel");
  c.cpu = cpu_text();
  c.client_cores = std::thread::hardware_concurrency();
  c.server_cores = get_count(welcome, "cores");
  c.client_pin = setup.pin;
  c.server_pin = get_text(welcome, "pin");
  c.mode = setup.request.sleep ? "sleep" : "poll";
  for (const Config::Entry& entry : config.entries()) {
    if (entry.key == "spin") c.spin = entry.value;
  }
  c.tcp_congestion = setup.request.tcp_congestion;
  c.peer = setup.server.text();
  c.seconds = setup.request.seconds;
  c.latency_seconds = setup.request.latency_seconds;
  c.rounds = setup.request.rounds;
  c.latency = setup.request.latency;
  c.bandwidth = setup.request.bandwidth;
  return c;
}

}  // namespace weft::cli
