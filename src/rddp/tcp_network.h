// The kernel's TCP under channels: non-blocking sockets and poll(2).
#pragma once

#include <memory>

#include "rddp/network.h"

namespace weft::rddp {

// Null: no memory.
[[nodiscard]] std::unique_ptr<Network> make_tcp_network();

}  // namespace weft::rddp
