// The API of RFC 4296 (<weft/rddp.h>) over lwIP's raw API, without an operating system.
#pragma once

#include <weft/rddp.h>

#include <lwip/ip_addr.h>
#include "rddp/network.h"

namespace weft::lwip {

// The board's part of the API.
struct Board {
  rddp::Network::Clock clock = nullptr;
  rddp::Network::Random random = nullptr;
  // Hands received frames to lwIP and calls sys_check_timeouts(). May wait for a frame until
  // `until`; may return sooner, or at once.
  void (*turn)(void* context, Instant until) = nullptr;
  void* context = nullptr;
  bool aligned = true;  // one FPDU per segment
};

// As rddp_open(). lwIP runs and has a network interface.   RDDP_INVALID, RDDP_NO_MEMORY
int open(const Board& board, const rddp_options* options, rddp_device** device);

}  // namespace weft::lwip
