// `weft stat`: what a live process does, from the counters that it publishes when asked.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/monitor.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <system_error>

#include "weft/command.h"
#include "weft/common/arguments.h"
#include "weft/common/message.h"
#include "weft/common/parse.h"
#include "weft/common/sysinfo.h"
#include "weft/stat/rates.h"
#include "weft/stat/show.h"
#include "weft/stat/sockets.h"

namespace weft::cli {
namespace {

struct StatOptions {
  std::string pid;
  std::string interval = "1";
  std::string count;
  bool once = false;
  bool totals = false;
  bool json = false;
  bool sockets = false;
};

struct StatPlan {
  int pid = 0;
  double interval_s = 1;
  std::uint64_t count = 0;  // 0: until the process ends
};

Outcome<StatPlan> make_plan_of(const StatOptions& o) {
  StatPlan plan;
  const auto pid = parse_count(o.pid, 1, 1U << 30U);
  if (!pid) return named("PID", pid.error());
  plan.pid = static_cast<int>(*pid);
  const auto interval = parse_seconds(o.interval);
  if (!interval) return named("--interval", interval.error());
  if (*interval < 0.01 || *interval > 3600) {
    return usage_error(fmt::format("--interval: '{}' is outside 10ms to 1 hour", o.interval));
  }
  plan.interval_s = *interval;
  if (o.once + o.totals + !o.count.empty() > 1) {
    return usage_error("--once, --total and --count exclude each other");
  }
  if (o.sockets && (o.once || o.totals || !o.count.empty())) {
    return usage_error("--sockets shows what is there now: leave out --once, --total and --count");
  }
  if (o.once || o.totals) plan.count = 1;
  if (o.count.empty()) return plan;
  const auto count = parse_count(o.count, 1, 1'000'000'000);
  if (!count) return named("--count", count.error());
  plan.count = *count;
  return plan;
}

std::string proc_path(int pid) { return fmt::format("/proc/{}", pid); }

bool exists(int pid) {
  struct stat st {};
  return ::stat(proc_path(pid).c_str(), &st) == 0;
}

// A process of another PID namespace may have published its counters in a folder of this one.
std::string program_name(int pid) {
  return exists(pid) ? first_line(proc_path(pid) + "/comm") : "in another PID namespace";
}

// Whether it has the background thread of a Weft device.
bool runs_weft(int pid) {
  std::error_code failed;
  std::filesystem::directory_iterator at(proc_path(pid) + "/task", failed);
  for (; !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
    const bool first = at->path().filename() == std::to_string(pid);
    if (!first && first_line((at->path() / "comm").string()) == "weft") return true;
  }
  return false;
}

// Why there are no counters to be found.
std::string explain_absence(int pid, const std::string& who) {
  struct stat st {};
  if (::stat(proc_path(pid).c_str(), &st) != 0) return fmt::format("there is no process {}", pid);
  if (st.st_uid != getuid()) {
    return fmt::format(
        "{} belongs to user {}, and its counters are for that user only: run `weft stat` as that "
        "user",
        who, st.st_uid);
  }
  if (runs_weft(pid)) {
    return fmt::format(
        "{} uses Weft and has no page of counters: it has no connection or listener yet, or there "
        "was no room for a page in XDG_RUNTIME_DIR and /dev/shm when it had",
        who);
  }
  return fmt::format("{} does not use Weft: it has no Weft device open", who);
}

// Why `pid` has no counters for us, in the user's terms.
Failure explain(int pid, Error error) {
  const std::string who = fmt::format("process {} ({})", pid, program_name(pid));
  switch (error) {
    case Error::kNotFound: return {explain_absence(pid, who)};
    case Error::kInvalidArgument:
      return {fmt::format(
          "there is no process {} here, and several in other PID namespaces: run `weft stat` in "
          "the one that is meant",
          pid)};
    case Error::kBadVersion:
      return {fmt::format("{} uses another version of Weft; use the `weft` of that version", who)};
    case Error::kTimedOut:
      return {fmt::format("{} does not answer: it is stopped, or kept from running", who)};
    case Error::kBusy: return {fmt::format("the counters of {} change too fast to be read", who)};
    default: return {fmt::format("{}: {}", who, describe(error))};
  }
}

// On a busy machine the other process may need longer than one look lasts.
Outcome<ProcessCounters> read_counters(int pid) {
  constexpr int kLooks = 10;
  auto counters = read_process_counters(pid);
  for (int i = 1; i < kLooks && !counters; ++i) {
    if (counters.error() != Error::kBusy && counters.error() != Error::kTimedOut) break;
    counters = read_process_counters(pid);
  }
  if (!counters) return tl::unexpected(explain(pid, counters.error()));
  return *counters;
}

void sleep_seconds(double seconds) {
  timespec left{};
  left.tv_sec = static_cast<time_t>(seconds);
  left.tv_nsec = static_cast<long>((seconds - static_cast<double>(left.tv_sec)) * 1e9);
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// False: nobody reads it, or there is no room.
bool print_sample(const StatHeading& heading, bool json, const ProcessCounters& before,
                  const ProcessCounters& after) {
  const Rates rates = rates_between(before, after);
  fmt::print("{}", json ? stat_json(heading, after, rates) : stat_text(heading, after, rates));
  return std::fflush(stdout) == 0;
}

Outcome<void> run_stat(const StatOptions& o) {
  const auto plan = make_plan_of(o);
  if (!plan) return tl::unexpected(plan.error());
  if (o.sockets) {
    const auto rows = read_sockets(plan->pid);
    if (!rows) return tl::unexpected(rows.error());
    fmt::print("{}", o.json ? sockets_json(plan->pid, *rows) : sockets_text(*rows));
    return {};
  }
  auto before = read_counters(plan->pid);
  if (!before) return tl::unexpected(before.error());
  const StatHeading heading{plan->pid, program_name(plan->pid), o.totals};
  if (o.totals) {
    print_sample(heading, o.json, {}, *before);
    return {};
  }
  for (std::uint64_t done = 0; plan->count == 0 || done < plan->count; ++done) {
    sleep_seconds(plan->interval_s);
    const auto after = read_counters(plan->pid);
    if (!after) {
      // Watching until the end is a success; a count that cannot be had is not.
      if (exists(plan->pid) || plan->count != 0) return tl::unexpected(after.error());
      say(fmt::format("process {} has ended", plan->pid));
      return {};
    }
    if (!print_sample(heading, o.json, *before, *after)) return {};
    before = after;
  }
  return {};
}

}  // namespace

void add_stat(Arguments& app) {
  auto options = std::make_shared<StatOptions>();
  StatOptions& o = *options;
  Arguments* command = app.add_subcommand(
      "stat", "Show what a live process does: operations, calls, polls, wake-ups");
  command->add_option("pid", o.pid, "The process").type_name("PID").required();
  command->add_option("-i,--interval", o.interval, "Time between two samples. Default: 1 s")
      .type_name("TIME");
  command
      ->add_option("-n,--count", o.count, "End after N intervals. Default: when the process does")
      .type_name("N");
  command->add_flag("--once", o.once, "One interval, like --count 1");
  command->add_flag("--total", o.totals,
                    "No interval: averages since the process opened its device; with --json the "
                    "counters too");
  command->add_flag("--sockets", o.sockets,
                    "No interval: each socket of a program under `weft run --sockets`, which path "
                    "it takes, and why");
  command->add_flag("--json", o.json, "One JSON object per line");
  command->footer(
      "The process must run as the same user. It publishes its counters on request, so a\n"
      "process that gets no request pays nothing.");
  when_chosen(*command, [options] { return exit_code_of(run_stat(*options)); });
}

}  // namespace weft::cli
