// The client of `weft perf`: runs a plan against a server over the control connection.
#pragma once

#include <weft/device.h>

#include "weft/perf/control.h"
#include "weft/perf/plan.h"
#include "weft/perf/results.h"

namespace weft::cli {

struct ClientSetup {
  SocketAddress server;
  Plan plan;
  PlanRequest request;
  bool show_progress = true;
  std::string pin = "not pinned";
};

// Connects and says hello. A refused connection says how to start a server there.
[[nodiscard]] Outcome<ControlConnection> reach_server(const SocketAddress& server);

[[nodiscard]] Outcome<RunResults> run_client(const ClientSetup& setup, Config config);

// What plain TCP sockets are to use beside RDMA on a path to `peer`.
[[nodiscard]] SocketChoice tcp_choice(const TestSpec& spec, const Config& config,
                                      const SocketAddress& peer);

}  // namespace weft::cli
