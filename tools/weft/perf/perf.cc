// `weft perf`: chooses the role and hands over to it.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "weft/common/arguments.h"
#include "weft/common/parse.h"
#include "weft/common/self.h"
#include "weft/common/sysinfo.h"
#include "weft/perf/perf_client.h"
#include "weft/perf/perf_options.h"
#include "weft/perf/perf_report.h"
#include "weft/perf/perf_server.h"

namespace weft::cli {
namespace {

Outcome<void> check_roles(const PerfOptions& o) {
  const int roles = !o.peer.empty() + o.self + (o.server || !o.listen.empty());
  if (roles == 1 && o.self && !o.pin.empty()) {
    return usage_error(
        "--pin is for one side; --self gives each side a CPU, or none with --no-pin");
  }
  if (roles == 1) return {};
  return usage_error(
      roles == 0 ? "say what to do: --self, HOST[:PORT], or --listen PORT for the other side"
                 : "HOST, --self and --listen exclude each other");
}

Outcome<int> read_pin(const PerfOptions& o) {
  if (o.pin.empty()) return -1;
  const auto cpu = parse_count(o.pin, 0, 1023);
  if (!cpu) return named("--pin", cpu.error());
  return static_cast<int>(*cpu);
}

Outcome<void> run_as_server(const PerfOptions& o, const Config& config) {
  ServerSetup setup;
  const auto where = parse_listen(o.listen, kPerfPort);
  if (!where) return named("--listen", where.error());
  const auto cpu = read_pin(o);
  if (!cpu) return tl::unexpected(cpu.error());
  if (*cpu >= 0) {
    if (auto ok = pin_to_cpu(*cpu); !ok) return ok;
  }
  setup.where = *where;
  setup.once = o.once;
  setup.quiet = o.quiet;
  setup.announce_fd = o.announce_fd;
  setup.pin = pin_text(*cpu);
  return run_server(setup, config);
}

// The server's command line. Its configuration is ours.
std::vector<std::string> server_arguments(const PerfOptions& o, int cpu) {
  std::vector<std::string> arguments{"perf", "--once", "--quiet", "--listen",
                                     o.ipv6 ? "[::1]:0" : "127.0.0.1:0"};
  const auto add = [&](const char* option, const std::string& value) {
    if (value.empty()) return;
    arguments.emplace_back(option);
    arguments.push_back(value);
  };
  for (const std::string& pair : o.common.config) add("--config", pair);
  add("--log", o.common.log);
  add("--congestion", o.congestion);
  if (cpu >= 0) add("--pin", std::to_string(cpu));
  return arguments;
}

void print_results(const PerfOptions& o, const RunResults& results) {
  const std::string text = o.json  ? report_json(results)
                           : o.csv ? report_csv(results)
                                   : report_table(results);
  fmt::print("{}", text);
  std::fflush(stdout);
}

Outcome<void> run_as_client(const PerfOptions& o, ClientSetup& setup, const Config& config,
                            int cpu) {
  if (cpu >= 0) {
    if (auto ok = pin_to_cpu(cpu); !ok) return ok;
  }
  setup.pin = pin_text(cpu);
  setup.show_progress = !o.quiet;
  const auto results = run_client(setup, config);
  if (!results) return tl::unexpected(results.error());
  print_results(o, *results);
  return {};
}

Outcome<void> run_self(const PerfOptions& o, ClientSetup& setup, const Config& config) {
  const PinPair pins = o.no_pin ? PinPair{} : choose_pins();
  // Before the device opens: it may start a thread, which would not survive a fork.
  auto server = ServerProcess::start(server_arguments(o, pins.server));
  if (!server) return tl::unexpected(server.error());
  const auto address =
      parse_peer(fmt::format("{}:{}", o.ipv6 ? "[::1]" : "127.0.0.1", server->port()), kPerfPort);
  if (!address) return tl::unexpected(address.error());
  setup.server = *address;
  return run_as_client(o, setup, config, pins.client);
}

Outcome<void> run_perf(PerfOptions o) {
  if (auto ok = check_roles(o); !ok) return ok;
  if (auto ok = apply_preset(o); !ok) return ok;
  auto config = load_config(o.common);
  if (!config) return tl::unexpected(config.error());
  if (auto ok = apply_to_config(o, *config); !ok) return ok;
  raise_descriptor_limit();
  if (o.server || !o.listen.empty()) return run_as_server(o, *config);

  // Two sides that spin on one core only keep each other from working.
  if (o.mode.empty() && allowed_cpus().size() < 2) o.mode = "sleep";
  ClientSetup setup;
  auto request = make_request(o, *config);
  if (!request) return tl::unexpected(request.error());
  setup.request = *request;
  auto plan = make_plan(setup.request);
  if (!plan) return tl::unexpected(plan.error());
  setup.plan = *plan;
  if (o.self) return run_self(o, setup, *config);
  auto server = parse_peer(o.peer, kPerfPort);
  if (!server) return tl::unexpected(server.error());
  setup.server = *server;
  const auto cpu = read_pin(o);
  if (!cpu) return tl::unexpected(cpu.error());
  return run_as_client(o, setup, *config, *cpu);
}

}  // namespace

void add_perf(Arguments& app) {
  auto options = std::make_shared<PerfOptions>();
  Arguments* command = app.add_subcommand(
      "perf",
      "Measure RDMA operations beside plain TCP: bandwidth, message rate, latency, CPU use");
  add_perf_options(*command, *options);
  command->footer(
      "Examples:\n"
      "  weft perf --self --op write,read --transport rdma,tcp --sweep 64..1M\n"
      "  weft perf --listen 7471                         on one machine, and on another:\n"
      "  weft perf HOST:7471 --op send --size 4k --verify");
  when_chosen(*command, [options] { return exit_code_of(run_perf(*options)); });
}

}  // namespace weft::cli
