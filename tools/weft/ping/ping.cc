// `weft ping`: options and roles.
#include "weft/ping/ping.h"

#include <fmt/format.h>

#include "weft/common/arguments.h"
#include "weft/common/common.h"
#include "weft/common/parse.h"
#include "weft/common/self.h"
#include "weft/perf/perf_options.h"

namespace weft::cli {
namespace {

struct PingOptions {
  CommonOptions common;
  std::string peer;
  std::string listen;
  bool server = false;
  bool self = false;
  bool ipv6 = false;
  bool once = false;
  bool quiet = false;
  bool json = false;
  std::string sizes = "64";
  std::string count = "10";
  std::string interval = "0.2";
  int announce_fd = -1;
};

void add_options(Arguments& command, PingOptions& o) {
  command.add_option("peer", o.peer, "Client: the server, HOST or HOST:PORT (default port 7472)")
      .type_name("HOST[:PORT]");
  command.add_option("--listen", o.listen, "Server: wait for clients on [ADDRESS:]PORT")
      .type_name("[ADDRESS:]PORT");
  command.add_flag("--server", o.server, "Server on the default port, 7472");
  command.add_flag("--self", o.self, "Both: the server is a second process on this machine");
  command.add_flag("-6,--ipv6", o.ipv6, "With --self: over ::1 instead of 127.0.0.1");
  command.add_flag("--once", o.once, "Server: end when there are no more clients");
  command.add_option("-s,--size", o.sizes, "Bytes per message, a list; as for `weft perf`")
      .type_name("SIZE")
      .show_default();
  command.add_option("-c,--count", o.count, "Rounds for each size").type_name("N").show_default();
  command.add_option("-i,--interval", o.interval, "Time between rounds")
      .type_name("TIME")
      .default_text("0.2 s");
  command.add_flag("-q,--quiet", o.quiet, "Statistics only; a server says nothing");
  command.add_flag("--json", o.json, "Statistics as JSON on stdout");
  command.add_option("--announce-fd", o.announce_fd).group("");
  add_common_options(command, o.common);
}

Outcome<PingClientSetup> read_client(const PingOptions& o) {
  PingClientSetup setup;
  setup.sizes.clear();
  for (const std::string& text : split_list(o.sizes)) {
    const auto size = parse_size(text);
    if (!size) return named("--size", size.error());
    if (*size == 0 || *size > kPingBytes) {
      return usage_error(fmt::format("--size: {} is outside 1 to {} bytes", *size, kPingBytes));
    }
    setup.sizes.push_back(*size);
  }
  const auto count = parse_count(o.count, 1, 1'000'000'000);
  if (!count) return named("--count", count.error());
  const auto interval = parse_seconds(o.interval);
  if (!interval) return named("--interval", interval.error());
  setup.count = *count;
  setup.interval_s = *interval;
  setup.quiet = o.quiet;
  setup.json = o.json;
  return setup;
}

Outcome<void> run_as_server(const PingOptions& o, const Config& config) {
  const auto where = parse_listen(o.listen, kPingPort);
  if (!where) return named("--listen", where.error());
  auto device = open_device(config);
  if (!device) return tl::unexpected(device.error());
  return run_ping_server({*where, o.once, o.quiet, o.announce_fd}, **device);
}

Outcome<void> run_as_client(PingClientSetup setup, const Config& config) {
  auto device = open_device(config);
  if (!device) return tl::unexpected(device.error());
  return run_ping_client(setup, **device);
}

Outcome<void> run_self(const PingOptions& o, PingClientSetup setup, const Config& config) {
  std::vector<std::string> arguments{"ping", "--once", "--quiet", "--listen",
                                     o.ipv6 ? "[::1]:0" : "127.0.0.1:0"};
  for (const std::string& pair : o.common.config) {
    arguments.emplace_back("--config");
    arguments.push_back(pair);
  }
  auto server = ServerProcess::start(std::move(arguments));
  if (!server) return tl::unexpected(server.error());
  const auto address =
      parse_peer(fmt::format("{}:{}", o.ipv6 ? "[::1]" : "127.0.0.1", server->port()), kPingPort);
  if (!address) return tl::unexpected(address.error());
  setup.server = *address;
  return run_as_client(std::move(setup), config);
}

Outcome<void> run_ping(const PingOptions& o) {
  const int roles = !o.peer.empty() + o.self + (o.server || !o.listen.empty());
  if (roles != 1) {
    return usage_error(
        roles == 0 ? "say what to do: --self, HOST[:PORT], or --listen PORT for the other side"
                   : "HOST, --self and --listen exclude each other");
  }
  const auto config = load_config(o.common);
  if (!config) return tl::unexpected(config.error());
  if (o.server || !o.listen.empty()) return run_as_server(o, *config);
  auto setup = read_client(o);
  if (!setup) return tl::unexpected(setup.error());
  if (o.self) return run_self(o, std::move(*setup), *config);
  const auto server = parse_peer(o.peer, kPingPort);
  if (!server) return tl::unexpected(server.error());
  setup->server = *server;
  return run_as_client(std::move(*setup), *config);
}

}  // namespace

void add_ping(Arguments& app) {
  auto options = std::make_shared<PingOptions>();
  Arguments* command =
      app.add_subcommand("ping", "Write, Send and Read between two processes, every byte verified");
  add_options(*command, *options);
  command->footer(
      "Examples:\n"
      "  weft ping --self --size 64,1M --count 3\n"
      "  weft ping --listen 7472                         on one machine, and on another:\n"
      "  weft ping HOST:7472");
  when_chosen(*command, [options] { return exit_code_of(run_ping(*options)); });
}

}  // namespace weft::cli
