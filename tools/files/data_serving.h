// Running a data server as a program: signals, and what is said at the start and the end.
#pragma once

#include <sys/types.h>

#include "files/server/server_shared.h"

namespace weft::data {

// To the most that the process may have. A folder of a copy takes a descriptor, as a file that is
// served does, for each connection.
void raise_descriptor_limit();

// Serves until SIGINT or SIGTERM; returns the exit code. The port is written to `announce_fd`, a
// decimal number and a newline, unless that is -1.
[[nodiscard]] int serve(const files::ServeOptions& options, int announce_fd);

// Prints how the server of this machine at that port is; returns the exit code.
[[nodiscard]] int serve_status(std::uint16_t port);

// Gives that server, which has to be the process `server`, another token; returns the exit code.
[[nodiscard]] int serve_reload(const files::ServeOptions& options, pid_t server);

}  // namespace weft::data
