// Help texts and the errors of the command line's parser, in the words of this program.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <regex>
#include <utility>

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

// A message of CLI11 in the words of this program.
std::string reworded(const std::string& text) {
  static const std::pair<std::regex, const char*> kRules[] = {
      {std::regex("^A subcommand is required$"), "a command is missing"},
      {std::regex("^(.+) was given a disallowed flag override$"), "$1: takes no value"},
      {std::regex("^(.+): Value (.*) not in range (\\S+) to (\\S+)$"),
       "$1: '$2' is not a number from $3 to $4"},
      {std::regex("^Could not convert: (\\S+) = (.*)$"), "$1: '$2' is not a number"},
      {std::regex("^(.+): At least (\\d+) required but received (\\d+)$"),
       "$1: takes at least $2 values, not $3"},
      {std::regex("^([^:]+): .* missing$"), "$1: its value is missing"},
      {std::regex("^(.+) is required$"), "$1 is missing"},
  };
  std::smatch found;
  for (const auto& [pattern, words] : kRules) {
    if (std::regex_match(text, found, pattern)) return found.format(words);
  }
  return text;
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
  return wrong_usage(fmt::format("{}; see {}", reworded(error.what()), see));
}

}  // namespace weft::cli
