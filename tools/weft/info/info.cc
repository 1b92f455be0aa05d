// `weft info`: what this build can do and how it is configured here.
#include <fmt/format.h>
#include <unistd.h>
#include <weft/device.h>
#include <weft/limits.h>
#include <weft/wiring.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "weft/common/arguments.h"
#include "weft/common/common.h"
#include "weft/common/message.h"
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
          {"rings", kRings, "of shared memory, 512 KiB each, per device"},
          {"backlog", kBacklog, "requests per listener that nobody has taken yet"},
          {"half_open_connections", kHalfOpenConnections, "per listener, without a request so far"},
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

// What programs take the device for.
std::string look_of(const Config& config) {
  if (config.personality != Personality::kRoce) return "iWARP in user space, over TCP";
  const auto address = gid_address(config);
  return fmt::format("looks like RoCE v2, GID {}; queue pairs may be wired by hand, over TCP",
                     address ? address->text() : "not found: see the key gid");
}

std::string heading(const Config& config, std::string_view device) {
  const Congestion congestion = read_congestion();
  std::string out = fmt::format("weft {}\n", version());
  out += fmt::format("  device       {} ({})\n", device, look_of(config));
  out += fmt::format("  CRC32C       {}\n", crc_method());
  out += fmt::format("  kernel       {}, {} CPUs\n", kernel_text(), allowed_cpus().size());
  out += fmt::format("  congestion   {} by default; any user may choose: {}\n",
                     congestion.system_default, congestion.allowed);
  return out;
}

std::string shown(const std::string& value) { return value.empty() ? "(empty)" : value; }

// Only what differs from the defaults.
std::string settings_short(const Config& config) {
  std::string out;
  for (const Config::Entry& e : config.entries()) {
    if (e.source == "default") continue;
    out += fmt::format("  {} = {}  ({})\n", e.key, shown(e.value), e.source);
  }
  return out.empty() ? "\nConfiguration: all values are the defaults.\n"
                     : "\nConfiguration (all other values are the defaults)\n" + out;
}

std::string limits_text() {
  std::string out = "\nLimits\n";
  for (const Limit& limit : all_limits()) {
    out += fmt::format("  {:<22}  {:>10}  {}\n", limit.name, limit.value, limit.unit);
  }
  return out;
}

std::string settings_long(const Config& config) {
  constexpr std::size_t kIndent = 6;
  const std::size_t width = screen_columns(STDOUT_FILENO) - kIndent;
  std::string out = "\nConfiguration: key = value (where it comes from)\n";
  for (const Config::Entry& e : config.entries()) {
    out += fmt::format("  {} = {}  ({})\n", e.key, shown(e.value), e.source);
    for (const std::string& text : {e.help, "Values: " + e.legal}) {
      for (const std::string& line : wrap(text, width)) {
        out += fmt::format("{:{}}{}\n", "", kIndent, line);
      }
    }
  }
  return out;
}

std::string info_text(const Config& config, std::string_view device, bool all) {
  std::string out = heading(config, device);
  if (!all) {
    return out + settings_short(config) +
           "\n`weft info --all` shows limits and every setting; `weft doctor` checks this machine.";
  }
  out += fmt::format("  available    {}\n", read_congestion().available);
  return out + limits_text() + settings_long(config) +
         "\nA key can be set in /etc/weft.conf, as WEFT_<KEY> in the environment, or by\n"
         "--config KEY=VALUE. The later one wins.";
}

// A configuration file with every key, each commented out.
std::string file_text(const Config& config) {
  constexpr std::size_t kWidth = 98;
  std::string out =
      "# Configuration of Weft, for every program on this machine that uses it. Lines are KEY = "
      "VALUE.\n"
      "# The environment (WEFT_<KEY>) overrides this file. See weft.conf(5).\n";
  for (const Config::Entry& e : config.entries()) {
    out += "\n";
    for (const std::string& text : {e.help, "Values: " + e.legal}) {
      for (const std::string& line : wrap(text, kWidth)) out += fmt::format("# {}\n", line);
    }
    out += fmt::format("#{} = {}\n", e.key, e.value);
  }
  return out;
}

struct Options {
  CommonOptions common;
  bool file = false;
  bool all = false;
  bool json = false;
};

Outcome<void> run_info(const Options& o) {
  const auto config = load_config(o.common);
  if (!config) return tl::unexpected(config.error());
  if (o.file) {
    fmt::print("{}", file_text(Config{}));
    return {};
  }
  const auto device = open_device(*config);
  if (!device) return tl::unexpected(device.error());
  const std::string_view name = (*device)->name();
  fmt::print("{}\n", o.json ? info_json(*config, name) : info_text(*config, name, o.all));
  return {};
}

}  // namespace

void add_info(Arguments& app) {
  auto options = std::make_shared<Options>();
  Arguments* command =
      app.add_subcommand("info", "Show the version, the device and the configuration");
  command->add_flag("--all", options->all, "Also the limits, and every setting with its values");
  command->add_flag("--file", options->file,
                    "A configuration file with every key at its default, commented out");
  command->add_flag("--json", options->json, "Everything as JSON on stdout");
  add_common_options(*command, options->common);
  when_chosen(*command, [options] { return exit_code_of(run_info(*options)); });
}

}  // namespace weft::cli
