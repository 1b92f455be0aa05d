// Options that every subcommand has, and what they lead to.
#pragma once

#include <weft/device.h>

#include <memory>
#include <string>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

struct CommonOptions {
  std::vector<std::string> config;  // KEY=VALUE
  std::string log;                  // a level, or empty
};
void add_common_options(Arguments& command, CommonOptions& options);

// Defaults, configuration file, environment, then `options`. A failure names the key, the value and
// the legal values.
[[nodiscard]] Outcome<Config> load_config(const CommonOptions& options);

[[nodiscard]] Outcome<std::shared_ptr<Device>> open_device(const Config& config);

// Where the value of `key` comes from: "default", a file, a variable, or "--config".
[[nodiscard]] std::string source_of(const Config& config, std::string_view key);

}  // namespace weft::cli
