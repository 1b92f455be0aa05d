// `weft`: the command line of Weft. See man/weft.1.
#include <fmt/format.h>
#include <weft/device.h>

#include <csignal>
#include <cstdio>
#include <system_error>

#include "weft/command.h"
#include "weft/common/arguments.h"
#include "weft/common/message.h"

namespace weft::cli {
namespace {

void add_commands(Arguments& app) {
  add_info(app);
  add_doctor(app);
  add_perf(app);
  add_ping(app);
  add_run(app);
  add_check(app);
  add_faults(app);
  add_timeline(app);
  add_lab(app);
  add_probe(app);
  add_devices(app);
  add_selftest(app);
  add_stat(app);
  add_report(app);
  add_data(app);
}

// {fmt} throws where the output cannot be written: after_output() says so.
int run_chosen() {
  try {
    return chosen_command()();
  } catch (const std::system_error&) {
    if (std::ferror(stdout) == 0) throw;
    return kExitFailure;
  }
}

int run(int argc, char** argv) {
  Arguments app{"RDMA (iWARP) in user space over ordinary TCP sockets.", "weft"};
  app.version(fmt::format("weft {}", version()));
  app.footer(
      "`weft COMMAND --help` describes a command, `man weft-COMMAND` explains it.\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage.");
  app.require_subcommand(0, 1);  // without one, the help text below lists them
  add_commands(app);
  for (Arguments* command : app.subcommands()) command->group("Commands");
  if (const auto end = app.parse(argc, argv)) return *end;
  if (chosen_command()) return run_chosen();
  fmt::print(stderr, "{}", app.help());
  return kExitUsage;
}

}  // namespace

}  // namespace weft::cli

int main(int argc, char** argv) {
  // A peer that goes away is an error of that call, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  return weft::cli::after_output(weft::cli::run(argc, argv));
}
