// A lab: hosts, the switch between them, and the commands that run there, from start to end.
#pragma once

#include <string>
#include <vector>

#include "lab/commands.h"
#include "lab/link.h"
#include "weft/command.h"
#include "weft/run/environment.h"

namespace weft::cli {

struct LabOptions {
  ProgramOptions program;  // its words are the commands
  std::uint64_t hosts = 2;
  std::string link;
  std::string until;  // the host whose command ends the lab; empty: all of them
  bool plain = false;
  bool loopback = false;  // no hosts, but addresses of this one
};

// Runs it to its end. The value is the exit status: that of the first command that failed, else 0.
[[nodiscard]] Outcome<int> run_lab(const LabOptions& options);

}  // namespace weft::cli
