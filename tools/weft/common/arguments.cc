#include "weft/common/arguments.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "weft/command.h"
#include "weft/common/help.h"

namespace weft::cli {

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::group(const std::string& name) {
  option_->group(name);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::once_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::comma_separated() {
  option_->delimiter(',');
  return *this;
}

Option& Option::default_text(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::between(std::uint64_t low, std::uint64_t high) {
  // Without a description: it would become part of the help text, where a value's name stands.
  option_->check(CLI::Range(low, high).description(""));
  return *this;
}

Option& Option::one_of(std::initializer_list<std::string> values) {
  // Without a description, as above.
  option_->check(CLI::IsMember(std::vector<std::string>(values)).description(""));
  return *this;
}

Arguments::Arguments(std::string description, std::string name)
    : program_(std::make_unique<CLI::App>(std::move(description), std::move(name))),
      app_(program_.get()) {
  app_->formatter(help_formatter());  // subcommands inherit it
}

Arguments::Arguments(CLI::App& app) : app_(&app) {}

Arguments::~Arguments() = default;

Arguments* Arguments::add_subcommand(const std::string& name, const std::string& description) {
  subcommands_.push_back(
      std::unique_ptr<Arguments>(new Arguments(*app_->add_subcommand(name, description))));
  return subcommands_.back().get();
}

template <class T>
Option Arguments::add_option(const std::string& names, T& value, const std::string& description) {
  return Option(*app_->add_option(names, value, description));
}

template Option Arguments::add_option(const std::string&, std::string&, const std::string&);
template Option Arguments::add_option(const std::string&, int&, const std::string&);
template Option Arguments::add_option(const std::string&, double&, const std::string&);
template Option Arguments::add_option(const std::string&, std::uint32_t&, const std::string&);
template Option Arguments::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Arguments::add_option(const std::string&, std::optional<std::uint16_t>&,
                                      const std::string&);
template Option Arguments::add_option(const std::string&, std::vector<std::string>&,
                                      const std::string&);
template Option Arguments::add_option(const std::string&, std::vector<std::uint64_t>&,
                                      const std::string&);

Option Arguments::add_each(const std::string& names, std::function<void(const std::string&)> take,
                           const std::string& description) {
  CLI::Option* const added =
      app_->add_option_function<std::string>(names, std::move(take), description);
  return Option(*added->trigger_on_parse());
}

Option Arguments::add_flag(const std::string& names, bool& value, const std::string& description) {
  return Option(*app_->add_flag(names, value, description));
}

Option Arguments::add_flag(const std::string& names, std::string& value,
                           const std::string& description) {
  return Option(*app_->add_flag(names, value, description));
}

void Arguments::footer(const std::string& text) { app_->footer(text); }

void Arguments::group(const std::string& name) { app_->group(name); }

void Arguments::version(const std::string& text) { app_->set_version_flag("--version", text); }

void Arguments::require_subcommand(int least, int most) {
  app_->require_subcommand(static_cast<std::size_t>(least), static_cast<std::size_t>(most));
}

void Arguments::callback(std::function<void()> chosen) { app_->callback(std::move(chosen)); }

void Arguments::take_all() {
  app_->set_help_flag();
  app_->prefix_command();
}

std::vector<std::string> Arguments::remaining() const { return app_->remaining(); }

std::vector<Arguments*> Arguments::subcommands() const {
  std::vector<Arguments*> all;
  for (const auto& subcommand : subcommands_) all.push_back(subcommand.get());
  return all;
}

std::string Arguments::help() const { return app_->help(); }

std::optional<int> Arguments::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version are no errors.
    if (error.get_exit_code() == 0) return app_->exit(error);
    return report_failure(explain(error, *app_));
  }
  return std::nullopt;
}

}  // namespace weft::cli
