// Plain TCP by io_uring, for comparison: linked sends, and receives into a ring of buffers, one
// request for all of them (multishot). Nothing of extended sockets.
#pragma once

#include <cstdint>
#include <string>

#include "exs-perf/workload.h"

namespace exs_perf {

// Why io_uring cannot be used here; empty: it can.
std::string uring_missing();

// A listener on a free port of every address.
struct UringListener {
  int fd = -1;
  std::uint32_t port = 0;
};
UringListener uring_listen(int domain);

// Accepts one connection, closes the listener and does the server's part.
void uring_serve(const UringListener& listener, const Plan& plan);

// The client's part. Ends the program when something fails.
struct UringOutcome {
  double latency_us = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;
};
UringOutcome uring_measure(const std::string& host, std::uint32_t port, const Plan& plan);

}  // namespace exs_perf
