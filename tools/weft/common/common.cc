#include "weft/common/common.h"

#include <fmt/format.h>

#include "weft/common/arguments.h"
#include "weft/common/message.h"
#include "weft/common/parse.h"

namespace weft::cli {
namespace {

std::function<int()>& command_work() {
  static std::function<int()> work;
  return work;
}

Outcome<void> set_value(Config& config, const std::string& key, const std::string& value,
                        std::string_view option) {
  std::string why;
  const Status done = config.set(key, value, &why, option);
  if (done) return {};
  if (done.error() != Error::kNotFound) return usage_error(why);
  std::vector<std::string> keys;
  for (const Config::Entry& entry : config.entries()) keys.push_back(entry.key);
  const std::string suggestion = did_you_mean(key, keys);
  return usage_error(fmt::format("{}: '{}' is not a setting; {}{}`weft info --all` lists them",
                                 option, key, suggestion, suggestion.empty() ? "" : " "));
}

}  // namespace

void set_command(std::function<int()> work) { command_work() = std::move(work); }

const std::function<int()>& chosen_command() { return command_work(); }

void when_chosen(Arguments& command, std::function<Outcome<int>()> work) {
  command.callback([work = std::move(work)] {
    set_command([work] {
      const Outcome<int> done = work();
      return done ? *done : report_failure(done.error());
    });
  });
}

void add_common_options(Arguments& command, CommonOptions& options) {
  command
      .add_option(
          "--config", options.config,
          "Set a configuration value for this run. `weft info --all` lists the keys. May be "
          "given several times")
      .type_name("KEY=VALUE")
      .once_each();
  command
      .add_option("--log", options.log,
                  "What to log: off, error, warning, info, debug or trace. Default: warning")
      .type_name("LEVEL");
}

Outcome<Config> load_config(const CommonOptions& options) {
  std::string why;
  auto config = Config::load(&why);
  if (!config) return usage_error(why.empty() ? "the configuration is not usable" : why);
  for (const std::string& text : options.config) {
    const auto pair = parse_assignment(text);
    if (!pair) return named("--config", pair.error());
    if (auto ok = set_value(*config, pair->first, pair->second, "--config"); !ok) {
      return tl::unexpected(ok.error());
    }
  }
  if (!options.log.empty()) {
    if (auto ok = set_value(*config, "log", options.log, "--log"); !ok) {
      return tl::unexpected(ok.error());
    }
  }
  return *config;
}

Outcome<std::shared_ptr<Device>> open_device(const Config& config) {
  auto device = Device::open(config);
  if (device) return *device;
  return failure(fmt::format("cannot open the device: {}", describe(device.error())));
}

std::string source_of(const Config& config, std::string_view key) {
  for (const Config::Entry& entry : config.entries()) {
    if (entry.key == key) return entry.source;
  }
  return "";
}

}  // namespace weft::cli
