// `weft selftest --serve`: the application that `weft selftest` wants at the other end.
#pragma once

#include <weft/weft.h>

#include <cstdint>

#include "weft/command.h"

namespace weft::selftest {

struct ServerSetup {
  SocketAddress where;
  bool quiet = false;
  int announce_fd = -1;  // the port goes there, as a line
};

// Serves until an error or the end of the process.
[[nodiscard]] cli::Outcome<void> serve(const ServerSetup& setup, Device& device);

}  // namespace weft::selftest
