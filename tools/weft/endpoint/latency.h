// The clock of a ping-pong test, the same for RDMA and for plain TCP.
#pragma once

#include <functional>

#include "weft/endpoint/endpoint.h"

namespace weft::cli {

struct PingPong {
  std::function<Outcome<void>()> round_trip;  // one message there, its answer back
  std::function<Outcome<void>()> begin;       // tells the server that the phase begins
  std::function<Outcome<void>(std::uint64_t messages)> end;
};

// Warms up, then times round trips until the time or the number of messages is reached.
[[nodiscard]] Outcome<PhaseResult> time_ping_pong(const PhaseLimits& limits,
                                                  const PingPong& ping_pong);

}  // namespace weft::cli
