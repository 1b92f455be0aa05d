// Kernel TCP as a transport.
#pragma once

#include "io/transport.h"
#include "os/fd.h"

namespace weft::io {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(os::Fd socket) noexcept : socket_(std::move(socket)) {}

  [[nodiscard]] std::ptrdiff_t send(std::span<const Slice> slices) override;
  [[nodiscard]] std::ptrdiff_t receive(std::span<const Slice> slices) override;
  [[nodiscard]] int fd() const noexcept override { return socket_.get(); }
  // Room to send is reported only on request. There nearly always is some, and each report would
  // cost a pass that finds nothing else.
  [[nodiscard]] std::uint32_t events(bool blocked) const noexcept override;
  // As receive() of one octet, which stays.
  [[nodiscard]] std::ptrdiff_t peek() const noexcept;
  void shutdown_send() noexcept override;
  void close(bool reset) noexcept override;
  [[nodiscard]] PeerLiveness liveness() const override;
  void keep_alive(Duration limit) override;
  [[nodiscard]] std::uint64_t unacknowledged() const override;
  [[nodiscard]] const char* path() const noexcept override { return "tcp"; }

 private:
  os::Fd socket_;
};

}  // namespace weft::io
