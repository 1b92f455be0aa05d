// `weft faults`: lets calls of a program fail.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "faults/fallible_calls.h"
#include "weft/common/arguments.h"
#include "weft/faults/sweep.h"

namespace weft::cli {
namespace {

struct FaultsOptions {
  SweepOptions sweep;
  std::string fail_on = "crash,hang,finding";
  bool json = false;
};

constexpr std::array<std::string_view, 5> kReasons = {"crash", "hang", "finding", "leak",
                                                      "ignored"};

Outcome<std::vector<std::string>> reasons_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= text.size() && text != "none";) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, end - at));
    if (std::ranges::find(kReasons, out.back()) == kReasons.end()) {
      return usage_error(
          fmt::format("--fail-on: '{}' is not a result; write some of crash, hang, "
                      "finding, leak, ignored with commas between, or none",
                      out.back()));
    }
    at = end + 1;
  }
  return out;
}

bool counts(const faults::Summary& sums, const std::string& reason) {
  if (reason == "crash") return sums.crashes > 0;
  if (reason == "hang") return sums.hangs > 0;
  if (reason == "finding") return sums.findings > 0;
  return reason == "leak" ? sums.leaks > 0 : sums.ignored > 0;
}

nlohmann::ordered_json as_json(const faults::Row& row) {
  const faults::SweepRun& run = row.run;
  const faults::Fault fault = *faults::fault_of(run);
  auto left = nlohmann::ordered_json::array();
  for (const faults::Left& one : row.verdict.left)
    left.push_back({{"kind", one.kind}, {"at", one.at}});
  auto found = nlohmann::ordered_json::array();
  for (const faults::Found& one : row.verdict.found) {
    found.push_back({{"rule", one.rule}, {"call", one.call}, {"text", one.text}, {"at", one.at}});
  }
  const bool ended = (row.verdict.result == faults::Result::kReported ||
                      row.verdict.result == faults::Result::kIgnored) &&
                     row.verdict.status >= 0;
  return {{"nth", run.nth},
          {"process", run.process},
          {"call", fault.call},
          {"error", fault.error},
          {"at", fault.at},
          {"result", faults::name_of(row.verdict.result)},
          {"status", ended ? nlohmann::ordered_json(row.verdict.status) : nlohmann::ordered_json()},
          {"signal", row.verdict.signal != 0 ? nlohmann::ordered_json(row.verdict.signal)
                                             : nlohmann::ordered_json()},
          {"others_wait", row.verdict.others_wait},
          {"seconds", run.seconds},
          {"said", run.said},
          {"left", left},
          {"findings", found}};
}

void print_json(const FaultsOptions& o, const Swept& swept, const faults::Summary& sums) {
  auto processes = nlohmann::ordered_json::array();
  for (const std::string& process : faults::processes_of(swept.plain))
    processes.push_back({{"process", process}, {"calls", faults::calls_of(swept.plain, process)}});
  auto runs = nlohmann::ordered_json::array();
  for (const faults::Row& row : swept.rows) runs.push_back(as_json(row));
  const nlohmann::ordered_json out = {
      {"program", o.sweep.program.program},
      {"time_limit", swept.time_limit_s},
      {"plain", {{"seconds", swept.plain.seconds}, {"processes", processes}}},
      {"runs", runs},
      {"summary",
       {{"runs", swept.rows.size()},
        {"reported", sums.reported},
        {"ignored", sums.ignored},
        {"crashes", sums.crashes},
        {"hangs", sums.hangs},
        {"others_wait", sums.waits},
        {"leaks", sums.leaks},
        {"findings", sums.findings}}},
      {"remarks", swept.remarks}};
  // The program's words may be any octets.
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

Outcome<int> run_sweep(const FaultsOptions& o) {
  const auto reasons = reasons_of(o.fail_on);
  if (!reasons) return tl::unexpected(reasons.error());
  if (o.sweep.time_limit_s < 0) return usage_error("--time-limit: write a number of seconds");
  const Outcome<Swept> swept = sweep(o.sweep);
  if (!swept) return tl::unexpected(swept.error());
  const faults::Summary sums = faults::summary_of(swept->rows);
  if (o.json) {
    print_json(o, *swept, sums);
  } else {
    fmt::print("{}", faults::table_of(swept->rows));
    for (const std::string& remark : swept->remarks) fmt::print("{}\n", remark);
  }
  if (swept->interrupted != 0) {
    constexpr int kShell = 128;
    return kShell + swept->interrupted;
  }
  const bool bad = std::ranges::any_of(
      *reasons, [&](const std::string& reason) { return counts(sums, reason); });
  return bad ? kExitFailure : kExitOk;
}

Outcome<int> list_calls() {
  for (const faults::FallibleCall& call : faults::fallible_calls())
    fmt::print("{:<28}{}\n", call.name, strerrorname_np(call.error));
  return kExitOk;
}

void add_sweep_options(Arguments& command, FaultsOptions& o) {
  SweepOptions& s = o.sweep;
  command
      .add_option("--time-limit", s.time_limit_s,
                  "Seconds that a run may take; then all its processes are ended. Default: three "
                  "times what the run without a fault took, at least 10")
      .type_name("SECONDS");
  command.add_option("--from", s.from, "The number of the first call that fails")
      .type_name("N")
      .between(1, UINT64_MAX)
      .show_default();
  command.add_option("--limit", s.limit, "Make at most so many runs")
      .type_name("N")
      .between(1, UINT64_MAX)
      .show_default();
  command
      .add_option("--per-place", s.per_place,
                  "Of calls with the same backtrace, only the first N count: for programs with "
                  "loops. Default: all count")
      .type_name("N");
  command
      .add_option("--process", s.process,
                  "Let only calls of those processes fail whose command line matches, a pattern of "
                  "the shell. Default: all processes, one after another")
      .type_name("PATTERN");
  command
      .add_option("--fail-on", o.fail_on,
                  "What the exit code 1 is for: crash, hang, finding, leak, ignored (comma "
                  "separated), or none")
      .type_name("LIST")
      .show_default();
  command
      .add_option("--report", s.report,
                  "Keep what each run printed and found in a folder for each run below DIR, a new "
                  "folder")
      .type_name("DIR");
  command
      .add_option("--suppress", s.suppress,
                  "File with findings of --check to leave out (weft-run(1))")
      .type_name("FILE");
  command.add_flag("--json", o.json, "Print JSON in place of the table");
  add_program_options(command, s.program);
}

}  // namespace

void add_faults(Arguments& app) {
  auto options = std::make_shared<FaultsOptions>();
  Arguments* command = app.add_subcommand("faults", "Let calls of an RDMA program fail");
  command->require_subcommand(1, 1);
  Arguments* swept = command->add_subcommand("sweep",
                                             "Run a program again and again: its first call fails, "
                                             "then its second, until all have failed");
  add_sweep_options(*swept, *options);
  swept->footer(
      "Exit codes: 0 nothing of --fail-on, 1 something of it, 2 wrong usage, 3 no sweep: the "
      "program\nfails without a fault, or makes no call that may fail.");
  when_chosen(*swept, [options] {
    options->sweep.progress = isatty(STDERR_FILENO) == 1;
    return run_sweep(*options);
  });
  Arguments* calls =
      command->add_subcommand("calls", "List the calls that fail in a sweep, with their errors");
  when_chosen(*calls, [] { return list_calls(); });
}

}  // namespace weft::cli
