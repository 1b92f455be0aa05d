// The API of RFC 4296 (rddp.h) needs this of a machine: TCP connections for channels, a clock, and
// a way to wait. One implementation per TCP: the kernel's (tcp_network.cc), lwIP
// (lwip/lwip_network.cc).
//
// Threads: one at a time.
#pragma once

#include <weft/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.h"
#include "proto/startup.h"
#include "rddp/rddp_channel.h"

namespace weft::rddp {

// A TCP connection under a channel. Destroying it resets what is still open.
class Link {
 public:
  virtual ~Link() = default;
  // Sends what there is to send, closes what is to be closed. After posting.
  virtual void progress() = 0;
  [[nodiscard]] virtual bool closed() const noexcept = 0;

  // Why TCP could not connect: kRefused, kUnreachable, kTimedOut, kNoMemory, kSystem.
  struct Failure {
    Error error = Error::kSystem;
    int system_error = 0;  // errno
  };
  // Nothing: it could, or it is still trying.
  [[nodiscard]] virtual std::optional<Failure> failure() const noexcept = 0;
};

class Acceptor {
 public:
  virtual ~Acceptor() = default;
  // A TCP connection has come: the channel that takes it. Null refuses it.
  virtual Channel* next_channel() = 0;
  // Its link. The network has called Channel::respond().
  virtual void connected(Channel& channel, std::unique_ptr<Link> link) = 0;
};

class Port {
 public:
  virtual ~Port() = default;
  [[nodiscard]] virtual std::uint16_t number() const noexcept = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  //   kInvalidArgument  not a host; kUnreachable, kRefused, kNoMemory, kSystem (errno), or as
  //   Channel::initiate()
  [[nodiscard]] virtual Result<std::unique_ptr<Link>> connect(Channel& channel, const char* host,
                                                              std::uint16_t port,
                                                              const proto::StartupOffer& offer) = 0;
  // `host` null: every address.   kAddressInUse, kUnreachable, kNoMemory, kSystem (errno)
  [[nodiscard]] virtual Result<std::unique_ptr<Port>> listen(Acceptor& acceptor, const char* host,
                                                             std::uint16_t port) = 0;
  // Moves octets for all links. Waits for some until `until`; may return sooner.
  virtual void wait(Instant until) = 0;

  // Both are the same for all networks of a program.
  using Clock = Instant (*)();
  using Random = std::uint32_t (*)();
  [[nodiscard]] virtual Clock clock() const noexcept = 0;
  [[nodiscard]] virtual Random random() const noexcept = 0;  // bits that peers cannot guess

  // A part of a file as memory.   kUnsupported, kInvalidArgument, kSystem
  struct Mapping {
    void* memory = nullptr;  // of the part
    void* base = nullptr;    // of the whole mapping
    std::size_t size = 0;
  };
  [[nodiscard]] virtual Result<Mapping> map(int fd, std::uint64_t offset, std::uint64_t length,
                                            bool writable) = 0;
  virtual void unmap(const Mapping& mapping) = 0;
};

}  // namespace weft::rddp
