// rdma_cm's ports beside those of TCP (docs/rdma-cm-ports.md). Port P of rdma_cm is UDP port P: its
// socket keeps the number from other listeners of rdma_cm, and answers which TCP port serves it. So
// a TCP listener of the program may have the same number.
#pragma once

#include <weft/address.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "io/engine.h"
#include "os/fd.h"

namespace weft::verbs {

// One port of rdma_cm that this process serves. Any thread; answers on the engine's.
class ServicePort final : public io::Handler, public std::enable_shared_from_this<ServicePort> {
 public:
  // Takes the number; port 0 chooses one.   as io::bind_socket()
  [[nodiscard]] static Result<std::shared_ptr<ServicePort>> take(const SocketAddress& local,
                                                                 bool v6_only, bool roce_like);

  // From now on questions are answered with `tcp_port`.   as Engine::add()
  [[nodiscard]] Status serve(io::Engine& engine, std::uint16_t tcp_port);
  // Another TCP port serves it.
  void move_to(std::uint16_t tcp_port) noexcept { tcp_port_.store(tcp_port); }
  // Gives the number back.
  void close(io::Engine& engine);
  [[nodiscard]] SocketAddress address() const { return address_; }

  void on_io(std::uint32_t events) override;

 private:
  ServicePort(os::Fd socket, const SocketAddress& address, bool roce_like)
      : socket_(std::move(socket)), address_(address), roce_like_(roce_like) {}

  os::Fd socket_;
  const SocketAddress address_;
  const bool roce_like_;
  std::atomic<std::uint16_t> tcp_port_{0};
};

// Asks a peer which TCP port serves a port of rdma_cm. Not thread-safe: the owner excludes others.
class PortQuestion {
 public:
  // To `peer`, from the address of `local` (unspecified: whatever the route says). Nothing is sent.
  //   as io::open_socket(), io::bind_socket() and connect(2)
  [[nodiscard]] static Result<PortQuestion> open(const SocketAddress& local,
                                                 const SocketAddress& peer);
  PortQuestion() = default;

  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  // Sends it, or sends it again. What fails shows in take().
  void ask();
  // The question that was answered is over: ask() is about something new.
  void renew();
  struct Answer {
    std::uint16_t tcp_port = 0;
    bool roce_like = false;
  };
  // The answer that has come.
  //   kTimedOut   none yet
  //   kRefused    nobody has that port of rdma_cm, or nobody that can be asked
  [[nodiscard]] Result<Answer> take();

 private:
  os::Fd socket_;
  std::uint16_t port_ = 0;
  std::uint64_t nonce_ = 0;
};

}  // namespace weft::verbs
