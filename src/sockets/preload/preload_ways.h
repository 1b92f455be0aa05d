// Which way a connection goes: by the rules, and by who listens there.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include "sockets/preload/socket_table.h"

namespace weft::sockets {

[[nodiscard]] inline bool by_ring(Way way) { return way == Way::kRing || way == Way::kRingOnly; }
// Rather none than a plain connection.
[[nodiscard]] inline bool must(Way way) { return way == Way::kRingOnly || way == Way::kRdmaOnly; }
[[nodiscard]] const char* name_of(Way way);

// How the connection shall go, and why.
[[nodiscard]] Way choose_way(const sockaddr* address, socklen_t length, const char*& reason);

[[nodiscard]] bool is_any(const sockaddr* address);
// "PORT/ADDRESS" of the datagram socket that tells of a listener. `any`: of all addresses.
[[nodiscard]] socklen_t listen_name(const sockaddr* address, bool any, sockaddr_un& out);

}  // namespace weft::sockets
