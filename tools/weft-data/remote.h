// How the command line names files of a server.
#pragma once

#include <cstdint>
#include <string>

namespace weft::data {

// HOST:PATH, [V6]:PATH or weft://HOST[:PORT]/PATH. False for a path of this machine.
struct RemotePath {
  std::string host;
  std::uint16_t port = 0;
  std::string path;
};
[[nodiscard]] bool parse_remote(const std::string& text, std::uint16_t default_port,
                                RemotePath& out);

}  // namespace weft::data
