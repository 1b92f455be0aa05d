// The two sides of one test, whatever the transport. client.cc and server.cc run them over the
// control connection; see docs/perf.md for the conversation. Each is used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/perf/control.h"
#include "weft/perf/perf_messages.h"
#include "weft/perf/plan.h"

namespace weft {
class Device;
}

namespace weft::cli {

// What the client saw in one phase.
struct PhaseResult {
  std::uint64_t messages = 0;
  double seconds = 0;
  double cpu_s = 0;                      // of this process
  std::uint64_t verified_bytes = 0;      // checked on this side
  std::vector<std::int64_t> samples_ns;  // latency: one per message
};

// Connections of a test are told from strangers by this number, which only the control connection
// carries.
using TestToken = std::uint64_t;

class ClientEndpoint {
 public:
  virtual ~ClientEndpoint() = default;
  // What the server must know before it gets ready (memory that it writes to, for instance).
  [[nodiscard]] virtual Json offer() const = 0;
  // Opens all connections. `ready` is the server's answer: port, token, memory.
  [[nodiscard]] virtual Outcome<void> connect(const SocketAddress& server, const Json& ready,
                                              Watch& watch) = 0;
  [[nodiscard]] virtual Outcome<PhaseResult> run(Phase phase, const PhaseLimits& limits,
                                                 Watch& watch) = 0;
  [[nodiscard]] virtual LinkFacts facts() const = 0;
  // Ends the connections in an orderly way. Without it they are cut off.
  virtual void close() = 0;
};

class ServerEndpoint {
 public:
  virtual ~ServerEndpoint() = default;
  // Listens on a port of its own at `local`; the answer tells the client where and what.
  [[nodiscard]] virtual Outcome<Json> listen(const SocketAddress& local, const Json& offer,
                                             TestToken token) = 0;
  // Takes all connections of the test.
  [[nodiscard]] virtual Outcome<void> accept_all(Watch& watch) = 0;
  // Serves one phase, until the client ends it.
  [[nodiscard]] virtual Outcome<ServerReport> serve(Phase phase, Watch& watch) = 0;
  [[nodiscard]] virtual LinkFacts facts() const = 0;
  virtual void close() = 0;
};

// `device` is needed for RDMA only. The socket choice is for plain TCP.
[[nodiscard]] Outcome<std::unique_ptr<ClientEndpoint>> make_client(const TestSpec& spec,
                                                                   Device& device,
                                                                   const SocketChoice& choice);
[[nodiscard]] Outcome<std::unique_ptr<ServerEndpoint>> make_server(const TestSpec& spec,
                                                                   Device& device,
                                                                   const SocketChoice& choice);

// Each kind of endpoint, by transport and operation.
[[nodiscard]] Outcome<std::unique_ptr<ClientEndpoint>> make_rdma_client(const TestSpec& spec,
                                                                        Device& device);
[[nodiscard]] Outcome<std::unique_ptr<ServerEndpoint>> make_rdma_server(const TestSpec& spec,
                                                                        Device& device);
[[nodiscard]] std::unique_ptr<ClientEndpoint> make_tcp_client(const TestSpec& spec,
                                                              const SocketChoice& choice);
[[nodiscard]] std::unique_ptr<ServerEndpoint> make_tcp_server(const TestSpec& spec,
                                                              const SocketChoice& choice);
[[nodiscard]] Outcome<std::unique_ptr<ClientEndpoint>> make_rdma_connector(const TestSpec& spec,
                                                                           Device& device);
[[nodiscard]] Outcome<std::unique_ptr<ServerEndpoint>> make_rdma_acceptor(const TestSpec& spec,
                                                                          Device& device);
[[nodiscard]] std::unique_ptr<ClientEndpoint> make_tcp_connector(const TestSpec& spec,
                                                                 const SocketChoice& choice);
[[nodiscard]] std::unique_ptr<ServerEndpoint> make_tcp_acceptor(const TestSpec& spec,
                                                                const SocketChoice& choice);

}  // namespace weft::cli
