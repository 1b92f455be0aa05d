// `weft serve`, `get`, `put`, `sync`, `ls` and `cat`: started as a program of their own, weft-data,
// which is an ordinary verbs program on Weft's drop-in libraries.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "weft/command.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

Outcome<std::string> find_data_program() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& at : {self / "weft-data", self / "../libexec/weft/weft-data"}) {
    if (access(at.c_str(), X_OK) == 0) return at.lexically_normal().string();
  }
  return failure(
      fmt::format("weft-data is not in {0} nor in {0}/../libexec/weft. It is built where liburing, "
                  "libcrypto and rdma-core's headers are (Debian: liburing-dev libssl-dev "
                  "libibverbs-dev librdmacm-dev)",
                  self.string()));
}

int start(const std::string& name, std::vector<std::string> arguments) {
  const Outcome<std::string> program = find_data_program();
  if (!program) return report_failure(program.error());
  arguments.insert(arguments.begin(), {"weft", name});
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  execv(program->c_str(), raw.data());
  return report_failure({fmt::format("{}: {}", *program, std::strerror(errno))});
}

}  // namespace

void add_data(CLI::App& app) {
  constexpr std::array<std::array<const char*, 2>, 6> kCommands = {{
      {"serve", "Serve files and folders to other machines"},
      {"get", "Copy files from a server"},
      {"put", "Copy files to a server"},
      {"sync", "Copy what differs, from or to a server"},
      {"ls", "List a folder of a server"},
      {"cat", "Write a server's files to the output"},
  }};
  for (const auto& [name, what] : kCommands) {
    CLI::App* command = app.add_subcommand(name, what);
    // Everything behind the name is weft-data's, --help too.
    command->set_help_flag();
    command->prefix_command();
    command->callback([command, name = std::string(name)] {
      set_command([command, name] { return start(name, command->remaining()); });
    });
  }
}

}  // namespace weft::cli
