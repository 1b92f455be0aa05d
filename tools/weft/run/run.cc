// `weft run`: starts an unmodified RDMA program on Weft's libraries.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "weft/common/arguments.h"
#include "weft/run/environment.h"

namespace weft::cli {
namespace {

struct RunOptions {
  ProgramOptions program;
  bool sockets = false;
  std::string rules;
  bool why = false;
  bool check = false;
  Faulting faults;
  Checking checks;
  std::string timeline;
};

void add_check_options(Arguments& command, RunOptions& o) {
  command.add_flag("--check", o.check,
                   "Look for mistakes in how the program uses verbs and rdma_cm, and print them to "
                   "stderr (docs/check.md)");
  command
      .add_option("--report", o.checks.report,
                  "With --check: write what is found to a file for each process in DIR, for `weft "
                  "check report`")
      .type_name("DIR");
  command
      .add_option("--suppress", o.checks.suppress,
                  "With --check: file with the findings to leave out: a rule, and a function of "
                  "the program, on each line")
      .type_name("FILE");
  command
      .add_option("--check-exit", o.checks.exit_status,
                  "With --check: exit status, 1 to 255, in place of 0 when an error or a warning "
                  "was found. Default: the program's own")
      .type_name("N");
  command
      .add_option("--hang", o.checks.hang,
                  "With --check: when nothing completes for so long (30s, 500ms), report what is "
                  "outstanding, and go on")
      .type_name("TIME");
  command
      .add_option("--also", o.checks.also,
                  "With --check: rules that are off otherwise, with commas (N14,W15,N24,N52)")
      .type_name("RULES");
}

void add_options(Arguments& command, RunOptions& o) {
  add_check_options(command, o);
  command
      .add_option("--faults", o.faults.file,
                  "Let calls and completions fail, or the program be killed, by the rules of FILE "
                  "(docs/faults.md)")
      .type_name("FILE");
  command
      .add_option("--record", o.faults.record,
                  "With --faults, --replay or --shake: write each effect of a rule to LOG, and the "
                  "request, completion or octet that it hit; and what --shake does, as comments")
      .type_name("LOG");
  command
      .add_option("--replay", o.faults.replay,
                  "Let happen what --record has written to LOG, and nothing else, with the same "
                  "seed of --shake")
      .type_name("LOG");
  command
      .add_option("--shake", o.faults.shake,
                  "Let the device do what the specifications allow and Weft normally does not do, "
                  "as this number decides; behind a colon, only the effects with these numbers "
                  "(docs/shake.md)")
      .type_name("SEED[:EFFECTS]");
  command
      .add_option("--timeline", o.timeline,
                  "Write to files in DIR where each request spends its time, for `weft timeline` "
                  "(docs/timeline.md)")
      .type_name("DIR");
  command.add_flag("--sockets", o.sockets,
                   "Carry busy TCP connections between programs of one user on this machine over "
                   "shared memory; all others stay TCP (docs/sockets.md)");
  command
      .add_option("--rules", o.rules,
                  "With --sockets: file that says which connections stay TCP (docs/sockets.md)")
      .type_name("FILE");
  command.add_flag("--why", o.why,
                   "With --sockets: print to stderr which path each connection takes, and why");
  add_program_options(command, o.program);
}

// Asks the library itself, so that a mistake is found before the program starts.
Outcome<void> check_rules(const std::string& library, const std::string& rules) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return failure(fmt::format("{}", dlerror()));
  auto* check = reinterpret_cast<int (*)(const char*, char*, std::size_t)>(
      dlsym(handle, "weft_sockets_check_rules"));
  char why[512] = "";
  if (check == nullptr) return failure(fmt::format("{} is of another version of Weft", library));
  if (check(rules.c_str(), why, sizeof why) != 0) return usage_error(why);
  return {};
}

Outcome<void> set_up_sockets(const RunOptions& o, const std::string& folder) {
  if (!o.sockets) {
    if (o.rules.empty() && !o.why) return {};
    return usage_error("--rules and --why go with --sockets");
  }
  const std::string library = folder + "/libweft-sockets.so";
  if (!o.rules.empty()) {
    // The program may change its folder.
    std::error_code error;
    const std::string rules = std::filesystem::absolute(o.rules, error).string();
    if (auto good = check_rules(library, rules); !good) return good;
    setenv("WEFT_SOCKETS_RULES", rules.c_str(), 1);
  }
  if (o.why) setenv("WEFT_SOCKETS_WHY", "1", 1);
  // The first one takes the sockets in IWARP mode, and hands all others to the second.
  prepend("LD_PRELOAD", fmt::format("{0}/libweft-sockets-iwarp.so:{1}", folder, library));
  return {};
}

Outcome<void> set_up(const RunOptions& o, const std::string& folder) {
  const Checking& c = o.checks;
  if (!o.check && !(c.report.empty() && c.suppress.empty() && c.exit_status.empty() &&
                    c.hang.empty() && c.also.empty()))
    return usage_error("--report, --suppress, --check-exit, --hang and --also go with --check");
  if (o.check) {
    if (auto ready = set_up_check(c, folder); !ready) return ready;
  }
  if (auto ready = set_up_faults(o.faults, folder); !ready) return ready;
  if (!o.timeline.empty()) {
    if (auto ready = set_up_timeline(o.timeline, folder); !ready) return ready;
  }
  return set_up_sockets(o, folder);
}

Outcome<int> run(const RunOptions& o) {
  const Outcome<Prepared> prepared = prepare(o.program);
  if (!prepared) return tl::unexpected(prepared.error());
  if (auto ready = set_up(o, prepared->folder); !ready) return tl::unexpected(ready.error());
  std::vector<char*> arguments = as_arguments(o.program.program);
  // This program ignores it; the one that takes its place decides for itself.
  std::signal(SIGPIPE, SIG_DFL);
  execv(prepared->path.c_str(), arguments.data());
  return failure(fmt::format("{}: {}", prepared->path, std::strerror(errno)), kExitCannotExecute);
}

}  // namespace

void add_run(Arguments& app) {
  auto options = std::make_shared<RunOptions>();
  Arguments* command = app.add_subcommand("run", "Run an unmodified RDMA program over Weft");
  command->footer(
      "The program replaces this one: it receives the signals, and its exit status is returned.\n"
      "Exit codes of weft itself: 2 wrong usage, 126 the file is no program, 127 there is no such\n"
      "file, 1 anything else.");
  add_options(*command, *options);
  when_chosen(*command, [options] { return run(*options); });
}

}  // namespace weft::cli
