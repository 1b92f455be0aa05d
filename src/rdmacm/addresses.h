// Socket addresses in rdma_cm's structs.
#pragma once

#include <rdma/rdma_cma.h>
#include <weft/address.h>

namespace weft::rdmacm {

// The length of an address of AF_INET or AF_INET6; 0 for every other family.
[[nodiscard]] socklen_t address_length(const sockaddr* address);
[[nodiscard]] SocketAddress to_weft(const sockaddr* address);
// `to` is one of the two unions of rdma_addr.
void store(const SocketAddress& from, sockaddr_storage& to);

// The local address from which the system would reach `peer`.   errno-valued failure: no route
struct Route {
  SocketAddress source;
  int error = 0;
};
[[nodiscard]] Route find_route(const SocketAddress& peer);

}  // namespace weft::rdmacm
