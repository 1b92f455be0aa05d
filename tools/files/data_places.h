// Where servers are and where they listen, on the command lines of weft-data, weft-mount and
// weft-video. What users may write: weft/common/where.h
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "files/server/server_shared.h"
#include "weft/common/where.h"

namespace weft::data {

// What --listen and --port of a server say.
struct ListenOptions {
  std::string listen;
  std::optional<std::uint16_t> port;
};
void add_listen_options(cli::Arguments& command, ListenOptions& options);
// Sets address and port of `serve`. Fails if the two name different ports.
[[nodiscard]] cli::Outcome<void> apply(const ListenOptions& options, files::ServeOptions& serve);

// --port of a client; without it the port is files::kDefaultPort.
using PortOption = std::optional<std::uint16_t>;
void add_port_option(cli::Arguments& command, PortOption& port);

// Reads a path of a server, and prints a hint where it can mean something else. A path of this
// machine is a failure, "TEXT: `why`".
[[nodiscard]] cli::Outcome<cli::RemotePath> remote_path(const std::string& text, PortOption port,
                                                        const std::string& why);

}  // namespace weft::data
