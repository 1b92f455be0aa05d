// `weft stat --sockets`: which path each socket of a process under `weft run --sockets` takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

struct SocketRow {
  int fd = -1;
  std::string role;  // connect, accept, listen; "-": not known
  std::string path;  // ring, rdma, tcp
  std::string local, peer, reason;
  std::int64_t since_ms = 0;  // since 1970, or 0: not known
};

// In the order of their numbers. Fails in the user's terms.
[[nodiscard]] Outcome<std::vector<SocketRow>> read_sockets(int pid);

[[nodiscard]] std::string sockets_text(const std::vector<SocketRow>& rows);
// One line for each socket.
[[nodiscard]] std::string sockets_json(int pid, const std::vector<SocketRow>& rows);

}  // namespace weft::cli
