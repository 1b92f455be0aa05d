// The server of `weft perf`: serves one client after another.
#pragma once

#include <weft/config.h>

#include <string>

#include "weft/perf/control.h"

namespace weft::cli {

struct ServerSetup {
  SocketAddress where;
  bool once = false;     // end after the first client
  bool quiet = false;    // say nothing on stdout
  int announce_fd = -1;  // the port is written here, as a line, once clients can connect
  std::string pin = "not pinned";
};

// Returns only on failure to listen, or after the first client with `once`.
[[nodiscard]] Outcome<void> run_server(const ServerSetup& setup, const Config& config);

}  // namespace weft::cli
