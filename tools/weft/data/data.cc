// `weft serve`, `get`, `put`, `sync`, `ls`, `cat`, `mount` and `video`: started as programs of
// their own (weft-data, weft-mount, weft-video), which are ordinary verbs programs on Weft's
// drop-in libraries.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "weft/command.h"
#include "weft/common/arguments.h"
#include "weft/common/beside.h"

namespace weft::cli {
namespace {

struct Program {
  const char* name;
  const char* needs;  // to be built
};
constexpr Program kData{"weft-data",
                        "liburing, libcrypto and rdma-core's headers are (Debian: liburing-dev "
                        "libssl-dev libibverbs-dev librdmacm-dev)"};
constexpr Program kMount{"weft-mount", "weft-data and libfuse3 are (Debian: libfuse3-dev)"};
constexpr Program kVideo{"weft-video",
                         "weft-data is. Debian has it in a package of its own, weft-video"};

int start(const Program& what, std::vector<std::string> arguments) {
  const Outcome<std::string> program = find_beside(what.name, what.needs);
  if (!program) return report_failure(program.error());
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  execv(program->c_str(), raw.data());
  return report_failure({fmt::format("{}: {}", *program, std::strerror(errno))});
}

}  // namespace

void add_data(Arguments& app) {
  struct Entry {
    const char* name;
    const char* what;
    const Program& program;
  };
  const std::array<Entry, 8> kCommands = {{
      {"serve", "Serve files and folders to other machines", kData},
      {"get", "Copy files from a server", kData},
      {"put", "Copy files to a server", kData},
      {"sync", "Copy what differs, from or to a server", kData},
      {"ls", "List a folder of a server", kData},
      {"cat", "Write a server's files to the output", kData},
      {"mount", "Mount a folder of a server", kMount},
      {"video", "Serve and show films", kVideo},
  }};
  for (const auto& [name, what, program] : kCommands) {
    Arguments* command = app.add_subcommand(name, what);
    // Everything behind the name is the program's, --help too.
    command->take_all();
    command->callback([command, what = &program, name = std::string(name)] {
      set_command([command, what, name] {
        std::vector<std::string> arguments = command->remaining();
        // weft-data has the command as a subcommand; the others are the command.
        const bool data = what == &kData;
        if (data) arguments.insert(arguments.begin(), name);
        arguments.insert(arguments.begin(), data ? "weft" : "weft " + name);
        return start(*what, std::move(arguments));
      });
    });
  }
}

}  // namespace weft::cli
