// Help texts and the errors of the command line's parser, in the words of this program.
#include "weft/common/help.h"

#include <fmt/format.h>
#include <regex.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/common/message.h"

namespace weft::cli {
namespace {

// CLI11 writes an optional value of a switch as "{on}"; and it neither wraps nor aligns long texts.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(kLeft);
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "COMMAND");
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    // A positional argument is best known by what stands there: HOST[:PORT].
    if (is_positional && !option->get_type_name().empty()) {
      return option->get_type_name() + dots(option);
    }
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    const std::size_t brace = name.find("{on}");
    if (brace != std::string::npos) name.replace(brace, 4, "[=on|off]");
    // A switch that turns something off takes no value.
    if (name.ends_with("{false}")) name.erase(name.find("{false}"));
    return name;
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return row(
        make_option_name(option, is_positional) + (is_positional ? "" : make_option_opts(option)),
        make_option_desc(option));
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_type_name().empty()) return "";
    return " " + option->get_type_name() + dots(option);
  }

  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string name = make_option_name(option, true);
    return option->get_required() ? name : "[" + name + "]";
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string value = option->get_default_str();
    return option->get_description() + (value.empty() ? "" : ". Default: " + value);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return row(command->get_name(), command->get_description());
  }

  std::string make_description(const CLI::App* app) const override {
    return joined(wrap(app->get_description(), screen_columns(STDOUT_FILENO)), "") + "\n";
  }

  // One empty line between groups; CLI11 leaves two.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (auto at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) {
      text.erase(at, 1);
    }
    return text;
  }

  std::string make_footer(const CLI::App* app) const override {
    const std::string footer = app->get_footer();
    std::string_view text = footer;
    std::string out;
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      // Shorter lines stay as they are: some are laid out.
      const bool fits = line.size() <= screen_columns(STDOUT_FILENO);
      out +=
          fits ? std::string(line) + "\n" : joined(wrap(line, screen_columns(STDOUT_FILENO)), "");
    }
    return out;
  }

 private:
  static constexpr std::size_t kLeft = 28;

  // Behind an option that takes any number of values, or may be given several times.
  static std::string dots(const CLI::Option* option) {
    return option->get_expected_max() == CLI::detail::expected_max_vector_size ? "..." : "";
  }

  static std::string joined(const std::vector<std::string>& lines, const std::string& indent) {
    std::string out;
    for (const std::string& line : lines) out += (out.empty() ? "" : indent) + line + "\n";
    return out;
  }

  // Name on the left, text on the right. A long name gets a line of its own.
  static std::string row(const std::string& name, const std::string& text) {
    const std::size_t width = screen_columns(STDOUT_FILENO) - kLeft;
    const std::string indent(kLeft, ' ');
    std::string out = fmt::format("  {:<{}}", name, kLeft - 2);
    if (name.size() + 4 > kLeft) out = fmt::format("  {}\n{}", name, indent);
    return out + joined(wrap(text, width), indent);
  }
};

Failure wrong_usage(std::string message) { return {std::move(message), kExitUsage}; }

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// "; did you mean 'perf'? See `weft --help`"
std::string advice(const std::string& suggestion, const std::string& see) {
  return suggestion.empty() ? fmt::format("; see {}", see)
                            : fmt::format("; {} See {}", suggestion, see);
}

// `words`, with $1 to $9 replaced by what the parentheses of a pattern have found in `text`.
std::string filled_in(std::string_view words, const std::string& text,
                      std::span<const regmatch_t> found) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != '$') {
      out += words[i];
      continue;
    }
    const regmatch_t& part = found[static_cast<std::size_t>(words[++i] - '0')];
    out.append(text, static_cast<std::size_t>(part.rm_so),
               static_cast<std::size_t>(part.rm_eo - part.rm_so));
  }
  return out;
}

// A message of CLI11 in the words of this program.
std::string reworded(const std::string& text) {
  static constexpr std::pair<const char*, const char*> kRules[] = {
      {"^A subcommand is required$", "a command is missing"},
      {"^(.+) was given a disallowed flag override$", "$1: takes no value"},
      {"^(.+): Value (.*) not in range ([^ ]+) to ([^ ]+)$",
       "$1: '$2' is not a number from $3 to $4"},
      {"^Could not convert: ([^ ]+) = (.*)$", "$1: '$2' is not a number"},
      {"^([^:]+): (.*) not in [{](.*)[}]$", "$1: '$2' is not one of $3"},
      {"^([^:]+): .* missing$", "$1: its value is missing"},
  };
  std::array<regmatch_t, 5> found{};
  for (const auto& [pattern, words] : kRules) {
    regex_t compiled;  // by <regex.h>: <regex> alone would take seconds to compile
    if (regcomp(&compiled, pattern, REG_EXTENDED) != 0) continue;
    const int status = regexec(&compiled, text.c_str(), found.size(), found.data(), 0);
    regfree(&compiled);
    if (status == 0) return filled_in(words, text, found);
  }
  return text;
}

// A positional argument as the help text shows it: HOST[:PORT]:PATH rather than SOURCE.
std::string shown_name(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && option->get_single_name() == name) {
      return option->get_type_name().empty() ? name : option->get_type_name();
    }
  }
  return name;
}

// The first word that nothing on the command line takes.
Failure explain_extra(const CLI::App& app, const CLI::App* command, const std::string& see) {
  const std::vector<std::string> extras = app.remaining(true);
  const std::string word = extras.empty() ? "" : extras.front();
  const std::string name = word.substr(0, word.find('='));
  if (word.starts_with('-') && word.size() > 1) {
    return wrong_usage(
        fmt::format("{}: there is no such option{}", name,
                    advice(did_you_mean(name, option_names(command ? *command : app)), see)));
  }
  if (command == nullptr && !command_names(app).empty()) {
    return wrong_usage(fmt::format("{}: there is no such command{}", word,
                                   advice(did_you_mean(word, command_names(app)), see)));
  }
  return wrong_usage(fmt::format("{}: one argument too many; see {}", word, see));
}

std::string missing(const CLI::ParseError& error, const CLI::App& app) {
  constexpr std::string_view kEnd = " is required";
  std::string text = error.what();
  if (!text.ends_with(kEnd) || text.starts_with("A ")) return reworded(text);
  text.resize(text.size() - kEnd.size());
  return shown_name(app, text) + " is missing";
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

Failure explain(const CLI::ParseError& error, const CLI::App& app) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const CLI::App* command = commands.empty() ? nullptr : commands.front();
  const std::string see = command != nullptr
                              ? fmt::format("`{} {} --help`", app.get_name(), command->get_name())
                              : fmt::format("`{} --help`", app.get_name());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return explain_extra(app, command, see);
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr) {
    return wrong_usage(fmt::format("{}; see {}", reworded(error.what()), see));
  }
  // A word that is no command: that one is missing would not help.
  if (command == nullptr && app.remaining_size() != 0) return explain_extra(app, command, see);
  return wrong_usage(fmt::format("{}; see {}", missing(error, command ? *command : app), see));
}

}  // namespace weft::cli
