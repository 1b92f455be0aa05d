// The agent on the board: carries out what a program on the workstation asks for. One agent per
// connection. Without an operating system; called from the main loop.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "agent_protocol.h"
#include "lwip/lwip_connection.h"
#include "rddp/endpoint.h"

namespace weft::boards {

// Commands come one at a time, and so do their reports; a kStream has more Writes under way.
inline constexpr rddp::EndpointConfig kAgentEndpoint{.send_depth = 4,
                                                     .recv_depth = 2,
                                                     .inline_bytes = 0,
                                                     .sges = 1,
                                                     .batches = 1,
                                                     .reads = 2,
                                                     .private_data_kept = 0};

struct AgentConfig {
  std::span<std::uint8_t> memory;  // what peers may read and write
  rddp::Endpoint::Clock clock = nullptr;
};

class Agent {
  // All memory of one connection but lwIP's.
  struct Room {
    std::optional<rddp::Endpoint> endpoint;
    std::optional<lwip::Connection> connection;
    alignas(kArenaAlignment) std::byte memory[rddp::Endpoint::memory_needed(kAgentEndpoint)];
  };

 public:
  Agent(const AgentConfig& config, rddp::Domain& domain, Stag memory_stag);

  // Makes a fresh endpoint and connects it, or waits to be given a connection. False: no memory, or
  // the connection could not be begun.
  [[nodiscard]] bool connect(const ip_addr_t& peer, std::uint16_t port);
  [[nodiscard]] lwip::Connection* prepare();

  // One turn: answers a request, carries out commands, reports. Ends what has ended.
  void turn();

  // Of one connection, beside lwIP's.
  static constexpr std::size_t kConnectionBytes = sizeof(Room);

  [[nodiscard]] bool idle() const noexcept { return connection_ == nullptr; }
  [[nodiscard]] bool halt_asked() const noexcept { return halt_; }

  static void note_dropped(std::uint32_t frames);

 private:
  struct Command {
    AgentOp op = AgentOp::kFill;
    Stag stag;
    std::uint64_t to = 0;
    std::uint32_t length = 0;
    std::uint32_t local = 0;
    std::uint64_t arg = 0;
    std::uint32_t number = 0;
  };
  static constexpr std::size_t kBuffers = 2;

  [[nodiscard]] bool make();
  void drop();
  [[nodiscard]] proto::StartupOffer offer(bool markers);
  void on_completion(const rddp::EndpointCompletion& done);
  void begin(const Command& command);
  void begin_local(const Command& command);
  [[nodiscard]] Status post(const Command& command, SendOp op);
  void stream_more();
  void report(std::uint32_t status, std::uint64_t value);
  void post_buffer(std::size_t which);

  const AgentConfig config_;
  rddp::Domain& domain_;
  const Stag stag_;
  Room room_;
  // Of the connection that there is; else null.
  rddp::Endpoint* endpoint_ = nullptr;
  lwip::Connection* connection_ = nullptr;
  std::uint8_t data_[kAgentDataSize];
  std::uint8_t buffers_[kBuffers][kCommandSize];
  std::uint8_t report_[kReportSize];
  Command current_;
  std::uint64_t posted_ = 0, finished_ = 0;  // of a kStream
  bool busy_ = false;                        // a command is being carried out
  bool reporting_ = false;                   // its report is under way
  std::optional<std::size_t> waiting_;       // the buffer that holds the next command
  bool halt_ = false;
};

}  // namespace weft::boards
