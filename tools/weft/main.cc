// `weft`: the command line of Weft. See man/weft.1.
#include <fmt/format.h>
#include <weft/device.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "weft/command.h"

namespace weft::cli {
namespace {

std::function<int()>& command() {
  static std::function<int()> work;
  return work;
}

void add_commands(CLI::App& app) {
  add_info(app);
  add_perf(app);
  add_ping(app);
  add_run(app);
  add_devices(app);
  add_selftest(app);
  add_stat(app);
  add_report(app);
}

int run(int argc, char** argv) {
  CLI::App app{"RDMA (iWARP) in user space over ordinary TCP sockets.", "weft"};
  app.set_version_flag("--version", fmt::format("weft {}", version()));
  app.footer(
      "weft COMMAND --help describes a command. Exit codes: 0 done, 1 failed, 2 wrong usage.");
  app.require_subcommand(0, 1);  // none is told below, with all there are
  add_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 numbers its errors from 100; to a shell there is only one kind of wrong usage.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (command()) return command()();
  fmt::print(stderr, "{}", app.help());
  return kExitUsage;
}

}  // namespace

int report_failure(const Failure& why) {
  fmt::print(stderr, "weft: {}\n", why.message);
  return why.exit_code;
}

void set_command(std::function<int()> work) { command() = std::move(work); }

}  // namespace weft::cli

int main(int argc, char** argv) {
  // A peer that goes away is an error of that call, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  return weft::cli::run(argc, argv);
}
