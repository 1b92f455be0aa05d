// The command line of exs-perf.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exs-perf/workload.h"

namespace exs_perf {

struct Options {
  bool self = false;
  bool listen = false;
  bool once = false;
  bool json = false;
  bool pin = true;
  std::string host;  // of the server, or to listen on; empty: every address
  std::string port;
  std::vector<Mode> modes;
  std::vector<std::uint32_t> sizes;
  int depth = 16;
  int buffers = 0;  // 0: usual_buffers()
  double seconds = 0.5;
  int rounds = 3;
  bool latency = true;
  bool bandwidth = true;
  int wait = EXS_WAIT_BUSY_POLL;
};

// Nothing after --help or wrong usage: the text is printed, and `exit_code` is set.
[[nodiscard]] std::optional<Options> parse(int argc, char** argv, int& exit_code);

}  // namespace exs_perf
