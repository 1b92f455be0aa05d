// `weft doctor`: looks at the machine, and says what to change and what it would gain.
#include <fmt/format.h>
#include <unistd.h>
#include <weft/device.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "weft/common/arguments.h"
#include "weft/common/message.h"
#include "weft/doctor/findings.h"

namespace weft::cli {
namespace {

using Level = Finding::Level;
constexpr std::size_t kTopicColumn = 10;
constexpr std::size_t kTextColumn = 30;

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kAdvice: return "advice";
    case Level::kProblem: return "PROBLEM";
  }
  return "";
}

std::string_view color_of(Level level) {
  switch (level) {
    case Level::kOk: return "\033[32m";
    case Level::kAdvice: return "\033[33m";
    case Level::kProblem: return "\033[31m";
  }
  return "";
}

// The level and the topic in their columns, then the text, wrapped.
std::string row(Level level, std::string_view topic, std::string_view text, bool color) {
  const std::string_view end = color ? "\033[0m" : "";
  std::string out = fmt::format("{}{:<{}}{}{:<{}}", color ? color_of(level) : "", name_of(level),
                                kTopicColumn, end, topic, kTextColumn - kTopicColumn);
  const auto lines = wrap(text, screen_columns(STDOUT_FILENO) - kTextColumn);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out += (i == 0 ? "" : std::string(kTextColumn, ' ')) + lines[i] + "\n";
  }
  return out;
}

std::string more(std::string_view label, std::string_view text) {
  std::string out;
  for (const std::string& line :
       wrap(fmt::format("{}: {}", label, text), screen_columns(STDOUT_FILENO) - kTextColumn)) {
    out += std::string(kTextColumn, ' ') + line + "\n";
  }
  return out;
}

void print_text(const std::vector<Finding>& findings) {
  const bool color = use_color(STDOUT_FILENO);
  std::size_t advice = 0;
  std::size_t problems = 0;
  for (const Finding& f : findings) {
    fmt::print("{}", row(f.level, f.topic, f.found, color));
    if (!f.change.empty()) fmt::print("{}", more("do", f.change));
    if (!f.gain.empty()) fmt::print("{}", more("why", f.gain));
    advice += f.level == Level::kAdvice ? 1 : 0;
    problems += f.level == Level::kProblem ? 1 : 0;
  }
  fmt::print(
      "\nProblems: {}. Advice: {}. Weft needs no privilege, no kernel module and no "
      "locked memory.\n",
      problems, advice);
}

void print_json(const std::vector<Finding>& findings) {
  auto list = nlohmann::ordered_json::array();
  for (const Finding& f : findings) {
    list.push_back({{"level", f.level == Level::kProblem ? "problem" : name_of(f.level)},
                    {"topic", f.topic},
                    {"found", f.found},
                    {"change", f.change},
                    {"gain", f.gain}});
  }
  const nlohmann::ordered_json document{{"version", version()}, {"findings", list}};
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int run_doctor(bool json) {
  const std::vector<Finding> findings = judge(look_at_machine());
  json ? print_json(findings) : print_text(findings);
  const bool broken =
      std::ranges::any_of(findings, [](const Finding& f) { return f.level == Level::kProblem; });
  return broken ? kExitFailure : kExitOk;
}

}  // namespace

void add_doctor(Arguments& app) {
  auto json = std::make_shared<bool>(false);
  Arguments* command = app.add_subcommand(
      "doctor", "Check this machine: what to change for Weft, and what it would gain");
  command->add_flag("--json", *json, "The findings as JSON on stdout");
  command->footer("It changes nothing. Exit codes: 0 no problem found, 1 something does not work.");
  command->callback([json] { set_command([json] { return run_doctor(*json); }); });
}

}  // namespace weft::cli
