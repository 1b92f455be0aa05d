// `weft check`: reads what `weft run --check --report DIR` has written, and explains its rules.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/command.h"
#include "weft/common/arguments.h"
#include "weft/run/program.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct CheckOptions {
  std::string folder;
  std::string rule;
  bool json = false;
};

// Fills lines of at most 78 columns, behind two spaces.
std::string filled(std::string_view text) {
  std::string out;
  std::string line = " ";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (line.size() + 1 + word.size() > 78) {
      out += line + "\n";
      line = " ";
    }
    line += " " + std::string(word);
    at = end + 1;
  }
  return out + line + "\n";
}

// The words of a rule: id, title, what was seen, why it matters, what to do.
using Rule = std::array<const char*, 5>;

// The library that has the rules has their texts, too.
Outcome<std::vector<Rule>> all_rules() {
  const Outcome<std::string> folder = find_dropin_folder();
  if (!folder) return tl::unexpected(folder.error());
  void* handle = dlopen((*folder + "/libweft-check.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return failure(fmt::format("{}", dlerror()));
  auto* get =
      reinterpret_cast<bool (*)(std::size_t, const char* [5])>(dlsym(handle, "weft_check_rule"));
  if (get == nullptr) return failure("libweft-check.so is of another version of Weft");
  std::vector<Rule> out;
  for (Rule rule{}; get(out.size(), rule.data());) out.push_back(rule);
  return out;
}

Outcome<int> explain(const CheckOptions& o) {
  const Outcome<std::vector<Rule>> rules = all_rules();
  if (!rules) return tl::unexpected(rules.error());
  bool found = false;
  for (const Rule& rule : *rules) {
    if (o.rule.empty()) fmt::print("{}  {}\n", rule[0], rule[1]);
    if (o.rule != rule[0]) continue;
    found = true;
    fmt::print("{}  {}\n\n{}\nWhy it matters\n{}\nWhat to do\n{}", rule[0], rule[1],
               filled(rule[2]), filled(rule[3]), filled(rule[4]));
  }
  if (!found && !o.rule.empty()) {
    return usage_error(
        fmt::format("there is no rule '{}'; `weft check explain` lists them", o.rule));
  }
  return kExitOk;
}

std::string place(const nlohmann::json& frames) {
  std::string out;
  for (const auto& frame : frames) {
    const std::string function = frame.value("function", std::string());
    const int line = frame.value("line", 0);
    out +=
        fmt::format("{}{} ({}{})", out.empty() ? "" : ", by ", function.empty() ? "?" : function,
                    frame.value("file", std::string()), line != 0 ? fmt::format(":{}", line) : "");
  }
  return out.empty() ? "an unknown place" : out;
}

std::string text_of(const nlohmann::json& one) {
  std::string out =
      fmt::format("{} {}: {}  [process {}]\n  called at {}\n", one.value("rule", std::string()),
                  one.value("call", std::string()), one.value("text", std::string()),
                  one.value("pid", 0), place(one.value("at", nlohmann::json::array())));
  for (const auto& note : one.value("notes", nlohmann::json::array())) {
    out += fmt::format("  {} at {}\n", note.value("text", std::string()),
                       place(note.value("at", nlohmann::json::array())));
  }
  return out;
}

bool is_finding(const nlohmann::json& one) {
  try {
    static_cast<void>(text_of(one));
  } catch (const nlohmann::json::exception&) {
    return false;  // something else, or of a later version
  }
  return true;
}

// The findings of one process. A process that was killed may have left half a line, its last.
void read_file(const fs::path& file, nlohmann::json& all) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    auto one = nlohmann::json::parse(line, nullptr, false);
    if (is_finding(one)) all.push_back(std::move(one));
  }
}

Outcome<int> report(const CheckOptions& o) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(o.folder, error)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  if (error) return failure(fmt::format("{}: {}", o.folder, error.message()));
  std::ranges::sort(files);
  auto all = nlohmann::json::array();
  for (const fs::path& file : files) read_file(file, all);
  if (o.json) {
    fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    for (const auto& one : all) fmt::print("{}", text_of(one));
  }
  const bool serious = std::ranges::any_of(all, [](const nlohmann::json& one) {
    return !one.value("rule", std::string("N")).starts_with('N');
  });
  return serious ? kExitFailure : kExitOk;
}

}  // namespace

void add_check(Arguments& app) {
  auto options = std::make_shared<CheckOptions>();
  Arguments* command =
      app.add_subcommand("check", "Show what `weft run --check` has found, and explain its rules");
  command->require_subcommand(1, 1);
  Arguments* shown = command->add_subcommand(
      "report", "Print what all processes have found that wrote to a report folder");
  shown->add_option("folder", options->folder, "That of `weft run --check --report DIR`")
      .type_name("DIR")
      .required();
  shown->add_flag("--json", options->json, "Print a JSON array");
  shown->footer("Exit codes: 0 nothing but notes, 1 an error or a warning, 2 wrong usage.");
  when_chosen(*shown, [options] { return report(*options); });
  Arguments* explained =
      command->add_subcommand("explain", "Explain a rule: what, why, what to do");
  explained->add_option("rule", options->rule, "As in the report. Without one: list the rules")
      .type_name("RULE");
  when_chosen(*explained, [options] { return explain(*options); });
}

}  // namespace weft::cli
