// How far a connection has come, see ConnectionImpl. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::verbs {

enum class ConnectionPhase : std::uint8_t {
  kIdle,        // may be bound
  kAsking,      // for the TCP port of a port of rdma_cm
  kConnecting,  // TCP handshake
  kRefused,     // waits to try the TCP handshake again
  kStarting,    // MPA start-up, see proto::Session
  kAttaching,   // the QP is being given the socket
  kUp,          // the QP has it
  kCarrying,    // start-up is over, and the connection is rdma_cm's
  kDown,        // over
};

enum class ConnectionStep : std::uint8_t {
  kConnect,    // connect()
  kAccepted,   // a listener has taken it
  kAsks,       // which TCP port it is
  kHandshake,  // TCP's begins
  kRefused,    // TCP's handshake, and there is time for another; or others wait for the same peer
  kConnected,  // TCP
  kAgreed,     // both frames are through
  kCarries,    // the same, of one that only carries the numbers of queue pairs
  kAttached,
  kEnded,
};

// The phase of one connection.
class PhaseOfConnection {
 public:
  operator ConnectionPhase() const noexcept { return now_; }
  void on(ConnectionStep step) noexcept;

 private:
  ConnectionPhase now_ = ConnectionPhase::kIdle;
};

using ConnectionArrow = Arrow<ConnectionPhase, ConnectionStep>;
[[nodiscard]] std::span<const ConnectionArrow> connection_arrows() noexcept;
[[nodiscard]] std::string_view describe(ConnectionPhase phase) noexcept;
[[nodiscard]] std::string_view describe(ConnectionStep step) noexcept;

}  // namespace weft::verbs
