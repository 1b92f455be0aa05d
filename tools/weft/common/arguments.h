// The command lines of this tree's programs: options, arguments and subcommands, how they are read,
// and what is said about a wrong one. CLI11 does the work, in arguments.cc and help.cc alone: each
// source that included it would take as long to compile as ten others.
//
// Set up and used by the main thread, before other threads start.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft::cli {

// One option or argument of the command line, to say more about it. Lives as long as its Arguments.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option& type_name(const std::string& name);  // what the help text shows as its value
  Option& group(const std::string& name);      // heading in the help text; "" hides the option
  Option& required();
  Option& once_each();                            // one value each time that it is given
  Option& comma_separated();                      // several values in one word
  Option& default_text(const std::string& text);  // what the help text calls its default value
  Option& show_default();                         // the value that the variable has now
  Option& between(std::uint64_t low, std::uint64_t high);
  Option& one_of(std::initializer_list<std::string> values);

 private:
  CLI::Option* option_;
};

// The command line of a program or of one of its subcommands. Variables that options are bound to
// must live until parse() has returned, and until the chosen callback has run.
class Arguments {
 public:
  Arguments(std::string description, std::string name);  // of a program
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // Lives as long as this object.
  Arguments* add_subcommand(const std::string& name, const std::string& description);

  // `names` is "NAME" of an argument, or "-n,--name" of an option. T: std::string, int, double,
  // unsigned numbers, optional<uint16_t>, vectors of std::string and of uint64_t.
  template <class T>
  Option add_option(const std::string& names, T& value, const std::string& description = "");
  // An option that may be given several times: `take` gets each value, in the order of the command
  // line, whatever options of this kind stand between.
  Option add_each(const std::string& names, std::function<void(const std::string&)> take,
                  const std::string& description);
  // "!--no-x" sets `value` to false. A text: "--x{on}" sets it to "on", and takes a value after
  // "=".
  Option add_flag(const std::string& names, bool& value, const std::string& description);
  Option add_flag(const std::string& names, std::string& value, const std::string& description);

  void footer(const std::string& text);
  void group(const std::string& name);    // of a subcommand, in the program's help text
  void version(const std::string& text);  // adds --version, which prints it
  void require_subcommand(int least, int most);
  void callback(std::function<void()> chosen);  // called by parse(), for a subcommand
  void take_all();  // all that follows the name of this subcommand is for remaining(), --help too
  [[nodiscard]] std::vector<std::string> remaining() const;
  [[nodiscard]] std::vector<Arguments*> subcommands() const;
  [[nodiscard]] std::string help() const;

  // Reads the words of main(). A value: end the program with this exit code. --help and --version
  // have been printed then, or what is wrong.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

 private:
  explicit Arguments(CLI::App& app);

  std::unique_ptr<CLI::App> program_;  // null for a subcommand
  CLI::App* app_;
  std::vector<std::unique_ptr<Arguments>> subcommands_;
};

}  // namespace weft::cli
