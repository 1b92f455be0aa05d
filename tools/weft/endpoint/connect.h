// What the connection set-up tests over RDMA and over plain TCP have in common.
#pragma once

#include <cstdint>

#include "weft/endpoint/rdma_hello.h"

namespace weft::cli {

// Goes as the number in the hello of each connection of such a test.
enum class ConnectKind : std::uint32_t {
  kSetUp = 0,  // counts
  kBegin = 1,  // the phase begins with it
  kEnd = 2,    // and ends with it
};

}  // namespace weft::cli
