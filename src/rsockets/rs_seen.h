// Remembers which events the watcher of an rsocket has been told, so that an edge is told once
// (EPOLLET): between librdmacm.so.1 and libweft-sockets-iwarp.so.
#pragma once

#include <cstdint>

namespace weft::rsockets {

struct RsSeen {
  std::uint64_t arrived = 0;  // octets that had ever arrived
  std::uint64_t refused = 0;  // sends that had found no room for all
  std::uint16_t bits = 0;     // what was ready, as poll(2) says it
  bool edges = false;         // only what is new counts as ready
};

}  // namespace weft::rsockets
