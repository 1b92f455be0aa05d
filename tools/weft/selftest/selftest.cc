// `weft selftest`: options and roles.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "weft/common/arguments.h"
#include "weft/common/common.h"
#include "weft/common/message.h"
#include "weft/common/parse.h"
#include "weft/common/self.h"
#include "weft/selftest/selftest_run.h"
#include "weft/selftest/selftest_server.h"

namespace weft::cli {
namespace {

struct SelftestOptions {
  CommonOptions common;
  std::string peer;
  bool serve = false;
  bool self = false;
  std::string listen;
  std::string port;  // the older name of listen
  std::string only;
  std::string timeout = "5";
  std::string path = "tcp";
  bool gentle = false;
  bool list = false;
  bool json = false;
  bool quiet = false;
  int announce_fd = -1;
};

void add_options(Arguments& command, SelftestOptions& o) {
  command
      .add_option("--peer", o.peer, "Check the iWARP peer that listens there (default port 7473)")
      .type_name("HOST[:PORT]");
  command.add_flag("--self", o.self, "Check Weft: the peer is a second process on this machine");
  command.add_flag("--serve", o.serve,
                   "Run the application that all checks work with, on port 7473");
  command.add_option("--listen", o.listen, "The same, on [ADDRESS:]PORT")
      .type_name("[ADDRESS:]PORT");
  command.add_option("--port", o.port, "With --serve: port to listen on; --listen says it too")
      .type_name("PORT");
  command.add_option("--only", o.only, "Checks to run: a list of names, or of beginnings of names")
      .type_name("LIST");
  command.add_flag("--gentle", o.gentle,
                   "Leave out the checks that have crashed hosts (man weft-selftest)");
  command.add_option("--timeout", o.timeout, "How long to wait for each answer of the peer")
      .type_name("TIME")
      .default_text("5 s");
  command
      .add_option("--path", o.path,
                  "How the octets of the checks go: ring moves each connection to shared memory; "
                  "the peer is then Weft, on this machine, with path=auto")
      .type_name("tcp|ring")
      .one_of({"tcp", "ring"})
      .show_default();
  command.add_flag("--list", o.list, "List the names of the checks, and end");
  command.add_flag("--json", o.json, "The outcome as JSON on stdout");
  command.add_flag("-q,--quiet", o.quiet,
                   "Print only the checks with remarks or faults, and the summary");
  command.add_option("--announce-fd", o.announce_fd).group("");
  add_common_options(command, o.common);
}

int list(const selftest::Checks& checks, const selftest::Selection& selection) {
  for (const selftest::Check& check : checks) {
    if (!selects(selection, check)) continue;
    fmt::print("{:28} {:11} {}{}{}\n", check.id, check.rfc, check.title,
               check.needs == selftest::Needs::kServer ? "  [serve]" : "",
               check.harsh ? "  [harsh]" : "");
  }
  return kExitOk;
}

Outcome<selftest::Selection> read_selection(const SelftestOptions& o,
                                            const selftest::Checks& checks) {
  selftest::Selection selection{.only = split_list(o.only), .gentle = o.gentle};
  for (const std::string& name : selection.only) {
    const selftest::Selection alone{.only = {name}};
    const bool known = std::any_of(checks.begin(), checks.end(),
                                   [&](const auto& check) { return selects(alone, check); });
    if (!known) {
      return usage_error(fmt::format("--only: no check begins with '{}'; --list names all", name));
    }
  }
  return selection;
}

Outcome<int> check_peer(const SelftestOptions& o, const SocketAddress& peer,
                        const selftest::Checks& checks, const selftest::Selection& selection) {
  const auto timeout = parse_seconds(o.timeout);
  if (!timeout) return named("--timeout", timeout.error());
  if (*timeout < 0.1 || *timeout > 600) {
    return usage_error(fmt::format("--timeout: {} is outside 0.1 to 600 seconds", o.timeout));
  }
  selftest::Context context;
  context.address = peer;
  context.by_ring = o.path == "ring";
  context.patience = raw::milliseconds(static_cast<std::int64_t>(*timeout * 1000));
  if (const auto why = meet(context)) {
    return failure(fmt::format(
        "{}: no iWARP connection comes about: {}; start `weft selftest --serve` there, or another "
        "application that listens for iWARP",
        peer.text(), *why));
  }
  if (!o.json) fmt::print("{}\n", headline(context));
  const auto outcomes =
      run_checks(context, checks, selection, [&o](const selftest::Outcome& outcome) {
        const auto grade = outcome.verdict.grade;
        const bool dull = grade == selftest::Grade::kRight || grade == selftest::Grade::kSkipped;
        if (o.json || (o.quiet && dull)) return;
        fmt::print("{}\n", line(outcome));
        std::fflush(stdout);
      });
  fmt::print("{}\n", o.json ? json(context, outcomes) : summary(outcomes));
  return all_well(outcomes) ? kExitOk : kExitFailure;
}

// By --listen, or by --port, which takes an address too in older scripts.
Outcome<SocketAddress> read_place(const SelftestOptions& o) {
  if (!o.listen.empty()) {
    if (!o.port.empty()) return usage_error("--listen names the port; leave --port out");
    const auto where = parse_listen(o.listen, selftest::kPort);
    if (!where) return named("--listen", where.error());
    return *where;
  }
  const auto where = parse_listen(o.port, selftest::kPort);
  if (!where) return named("--port", where.error());
  if (!where->is_any()) {
    say(fmt::format("--port: '{}' is read as an address; write --listen {}", o.port,
                    where->text()));
  }
  return *where;
}

Outcome<int> run_server(const SelftestOptions& o) {
  const auto where = read_place(o);
  if (!where) return tl::unexpected(where.error());
  const auto config = load_config(o.common);
  if (!config) return tl::unexpected(config.error());
  auto device = open_device(*config);
  if (!device) return tl::unexpected(device.error());
  const auto done = selftest::serve({*where, o.quiet, o.announce_fd}, **device);
  if (!done) return tl::unexpected(done.error());
  return kExitOk;
}

Outcome<int> check_self(const SelftestOptions& o, const selftest::Checks& checks,
                        const selftest::Selection& selection) {
  // Its warnings would be about each broken rule.
  std::vector<std::string> arguments{"selftest",    "--quiet", "--listen",
                                     "127.0.0.1:0", "--log",   "off"};
  if (o.path == "ring") arguments.insert(arguments.end(), {"--config", "path=auto"});
  for (const std::string& pair : o.common.config) {
    arguments.emplace_back("--config");
    arguments.push_back(pair);
  }
  auto server = ServerProcess::start(std::move(arguments));
  if (!server) return tl::unexpected(server.error());
  const auto address = parse_peer(fmt::format("127.0.0.1:{}", server->port()), selftest::kPort);
  if (!address) return tl::unexpected(address.error());
  auto outcome = check_peer(o, *address, checks, selection);
  server->tell_to_end();
  return outcome;
}

Outcome<int> run_selftest(const SelftestOptions& o) {
  const selftest::Checks checks = selftest::all_checks();
  const auto selection = read_selection(o, checks);
  if (!selection) return tl::unexpected(selection.error());
  if (o.list) return list(checks, *selection);
  const bool serve = o.serve || !o.listen.empty();
  if (!o.peer.empty() + o.self + serve != 1) {
    return usage_error(
        "say what to do: one of --peer HOST[:PORT], --self, --serve or --listen, --list");
  }
  if (serve) return run_server(o);
  if (!o.port.empty()) return usage_error("--port goes with --serve; a peer is HOST:PORT");
  if (o.self) return check_self(o, checks, *selection);
  const auto peer = parse_peer(o.peer, selftest::kPort);
  if (!peer) return named("--peer", peer.error());
  return check_peer(o, *peer, checks, *selection);
}

}  // namespace

void add_selftest(Arguments& app) {
  auto options = std::make_shared<SelftestOptions>();
  Arguments* command =
      app.add_subcommand("selftest", "Check an iWARP peer of any make against the RFCs");
  add_options(*command, *options);
  command->footer(
      "Examples:\n"
      "  weft selftest --self                        Weft itself\n"
      "  weft selftest --serve                       on one machine, and on another:\n"
      "  weft selftest --peer HOST\n"
      "  weft selftest --peer HOST:7174 --gentle     any other application, here rping -s -P\n"
      "Exit codes: 0 nothing is wrong, 1 something is, or no connection, 2 wrong usage.");
  when_chosen(*command, [options] { return run_selftest(*options); });
}

}  // namespace weft::cli
