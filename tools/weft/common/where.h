// One way to say where: hosts, addresses, ports and paths of servers as users write them, for every
// tool. Pure functions that resolve no name. Each failure names the text and says what to write.
// Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/command.h"

namespace weft::cli {

struct HostPort {
  std::string host;                   // without brackets; empty: every address of this machine
  std::optional<std::uint16_t> port;  // nothing: not written
  std::string hint;                   // for the user, where the text can mean something else
};

// Whom to connect to: HOST, HOST:PORT, [IPV6]:PORT, or an IPv6 address alone, with or without
// brackets. The host is never empty, and the port never 0.
[[nodiscard]] Outcome<HostPort> parse_host_port(std::string_view text);

// Where to listen: PORT, :PORT, ADDRESS:PORT, [IPV6]:PORT, or an address alone. A number alone is a
// port. Port 0 asks for a free one. An empty text leaves both open.
[[nodiscard]] Outcome<HostPort> parse_listen_place(std::string_view text);

struct RemotePath {
  std::string host;
  std::uint16_t port = 0;
  std::string path;
  std::string hint;  // for the user, where the text can mean something else
};

// A path of a server: HOST:PATH, HOST:PORT:PATH or weft://HOST[:PORT]/PATH. Nothing: a path of this
// machine. `port_option` is the value of --port, if that was given; `default_port` counts where
// neither names a port.
//
// HOST:NUMBER/PATH can mean a port or a folder: it is a port, unless --port was given.
// HOST:NUMBER can mean a port or a name: it is a name. Both have a hint. HOST:./NUMBER/PATH is
// always a path.
[[nodiscard]] Outcome<std::optional<RemotePath>> parse_remote_path(
    std::string_view text, std::optional<std::uint16_t> port_option, std::uint16_t default_port);

}  // namespace weft::cli
