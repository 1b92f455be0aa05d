// How data connections over plain TCP introduce themselves: 8 bytes of magic, token, number.
#pragma once

#include <weft/address.h>

#include <cstdint>
#include <optional>

#include "weft/endpoint/rdma_hello.h"

namespace weft::cli {

// Connects to the server's data port and says hello.
[[nodiscard]] Outcome<UniqueFd> tcp_join(const SocketAddress& server, const Hello& hello,
                                         const SocketChoice& choice);
// Listens on a free port of `local`'s address; the answer tells the client which.
[[nodiscard]] Outcome<Json> tcp_listen_on_any_port(SocketAddress local, const SocketChoice& choice,
                                                   UniqueFd& listener);
// Reads what a new connection says of itself; nothing if it is a stranger or says nothing.
[[nodiscard]] std::optional<Hello> read_tcp_hello(int fd);

}  // namespace weft::cli
