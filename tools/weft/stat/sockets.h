// `weft stat --sockets`: which path each socket of a process under `weft run --sockets` takes.
#pragma once

#include <string>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

struct SocketRow {
  int fd = -1;
  std::string role;  // connect, accept, listen
  std::string path;  // ring, rdma, tcp; asking: the peer has not answered yet; any: a listener
  std::string local, peer, reason;
};

// In the order of their numbers. Fails in the user's terms.
[[nodiscard]] Outcome<std::vector<SocketRow>> read_sockets(int pid);

[[nodiscard]] std::string sockets_text(const std::vector<SocketRow>& rows);
// One line for each socket.
[[nodiscard]] std::string sockets_json(int pid, const std::vector<SocketRow>& rows);

}  // namespace weft::cli
