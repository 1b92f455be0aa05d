// `weft info`: what this build can do and how it is configured here.
#include <fmt/format.h>
#include <weft/device.h>
#include <weft/limits.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "weft/common/common.h"
#include "weft/common/sysinfo.h"

namespace weft::cli {
namespace {

using Ordered = nlohmann::ordered_json;

struct Limit {
  const char* name;
  std::uint64_t value;
  const char* unit;
};

std::vector<Limit> all_limits() {
  using namespace limits;
  return {{"queue_pairs", kQueuePairs, "per device"},
          {"completion_queues", kCompletionQueues, "per device"},
          {"protection_domains", kProtectionDomains, "per device"},
          {"shared_receive_queues", kSharedReceiveQueues, "per device"},
          {"work_requests", kWorkRequestsPerQueue, "per queue"},
          {"completions", kCompletionsPerQueue, "per queue"},
          {"sges", kSgesPerRequest, "per work request"},
          {"inline", kInlineBytes, "bytes"},
          {"message", kMessageBytes, "bytes"},
          {"ird", kIrd, "Reads and atomics served at once, per queue pair"},
          {"ord", kOrd, "Reads and atomics outstanding, per queue pair"},
          {"memory_regions", kMemoryRegions, "regions and windows, per device"},
          {"private_data", kPrivateDataBytes, "bytes"},
          {"half_open_connections", kHalfOpenConnections, "per listener"},
          {"async_events", kAsyncEvents, "undelivered, per device"}};
}

struct Congestion {
  std::string system_default;
  std::string allowed;  // open to unprivileged users
  std::string available;
};

Congestion read_congestion() {
  const std::string folder = "/proc/sys/net/ipv4/tcp_";
  return {first_line(folder + "congestion_control"),
          first_line(folder + "allowed_congestion_control"),
          first_line(folder + "available_congestion_control")};
}

std::string info_json(const Config& config, std::string_view device) {
  Ordered limits_json = Ordered::object();
  for (const Limit& limit : all_limits()) limits_json[limit.name] = limit.value;
  Ordered entries = Ordered::array();
  for (const Config::Entry& e : config.entries()) {
    entries.push_back({{"key", e.key},
                       {"value", e.value},
                       {"source", e.source},
                       {"legal", e.legal},
                       {"help", e.help}});
  }
  const Congestion congestion = read_congestion();
  const Ordered document{{"version", version()},
                         {"device", device},
                         {"crc", crc_method()},
                         {"kernel", kernel_text()},
                         {"cpus", allowed_cpus().size()},
                         {"congestion",
                          {{"default", congestion.system_default},
                           {"allowed", congestion.allowed},
                           {"available", congestion.available}}},
                         {"limits", limits_json},
                         {"config", entries}};
  return document.dump(2, ' ', false, Ordered::error_handler_t::replace);
}

std::string info_text(const Config& config, std::string_view device) {
  const Congestion congestion = read_congestion();
  std::string out = fmt::format("weft {}\n", version());
  out += fmt::format("  device       {} (iWARP in user space, over TCP)\n", device);
  out += fmt::format("  CRC32C       {}\n", crc_method());
  out += fmt::format("  kernel       {}, {} CPUs\n", kernel_text(), allowed_cpus().size());
  out += fmt::format("  congestion   system default {}; allowed to everyone: {}; available: {}\n\n",
                     congestion.system_default, congestion.allowed, congestion.available);
  out += "Limits\n";
  for (const Limit& limit : all_limits()) {
    out += fmt::format("  {:<22}  {:>10}  {}\n", limit.name, limit.value, limit.unit);
  }
  out += "\nConfiguration (key, value, where it comes from; legal values)\n";
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  std::size_t source_width = 0;
  const std::vector<Config::Entry> entries = config.entries();
  for (const Config::Entry& e : entries) {
    key_width = std::max(key_width, e.key.size());
    value_width = std::max(value_width, e.value.size());
    source_width = std::max(source_width, e.source.size());
  }
  for (const Config::Entry& e : entries) {
    out += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {}; {}\n", e.key, key_width,
                       e.value.empty() ? "-" : e.value, value_width, e.source, source_width, e.help,
                       e.legal);
  }
  return out +
         "\nEach key can be set in /etc/weft.conf, as WEFT_<KEY> in the environment, or by\n"
         "--config KEY=VALUE; the later ones win.\n";
}

Outcome<void> run_info(const CommonOptions& common, bool json) {
  const auto config = load_config(common);
  if (!config) return tl::unexpected(config.error());
  const auto device = open_device(*config);
  if (!device) return tl::unexpected(device.error());
  fmt::print("{}\n",
             json ? info_json(*config, (*device)->name()) : info_text(*config, (*device)->name()));
  return {};
}

}  // namespace

void add_info(CLI::App& app) {
  struct Options {
    CommonOptions common;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "info", "Version, device, limits, and each configuration value with its source");
  command->add_flag("--json", options->json, "As JSON");
  add_common_options(*command, options->common);
  command->callback([options] {
    set_command([options] {
      const auto done = run_info(options->common, options->json);
      return done ? kExitOk : report_failure(done.error());
    });
  });
}

}  // namespace weft::cli
