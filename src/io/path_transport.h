// The transport of a connection inside one machine: TCP at first, and a ring of shared memory as
// soon as both ends have one. Each direction changes over by itself, at a place in the stream that
// the protocol above marks; TCP goes on as the sign of life, and carries the end of the stream.
//
// As Transport: one thread at a time. While a ring is there, what TCP brings is its end; octets on
// it are a violation (-EPROTO), as is nonsense in the ring.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/result.h"
#include "io/tcp_transport.h"
#include "os/fd.h"
#include "shm/ring.h"

namespace weft::io {

class PathTransport final : public Transport {
 public:
  enum class Way : std::uint8_t { kTcp, kRing };

  explicit PathTransport(os::Fd socket) noexcept : tcp_(std::move(socket)) {}

  // Takes the ring; nothing goes through it yet. From now on there is a bell(), which has to be
  // registered. When it is gone, take_left_bell() has it.
  void add_ring(shm::Ring ring);
  // The peer has the memory, too: see Ring::secure(). False: the connection can't go on, and send()
  // and receive() say so. The bell is gone then.
  [[nodiscard]] bool secure_ring() noexcept;
  // Both directions are back on TCP: gives the ring up, and the bell with it.
  void drop_ring() noexcept;
  // The connection is over in good order: gives the ring up, as drop_ring(), and returns what may
  // serve another connection. None if not both directions go by it.
  [[nodiscard]] std::optional<shm::SpareRing> take_spare() noexcept;
  [[nodiscard]] bool has_ring() const noexcept { return ring_.has_value(); }
  // The bell of a ring that was given up: to be taken out of epoll before it is closed. A child
  // that vfork() has made may have it open, too, and then the close alone takes it out of nothing.
  [[nodiscard]] os::Fd take_left_bell() noexcept { return std::exchange(left_bell_, os::Fd()); }
  // Octets from here on.  REQUIRES: has_ring() where `way` is the ring.
  void send_by(Way way) noexcept {
    assert(way == Way::kTcp || ring_.has_value());
    tx_ = way;
  }
  void receive_by(Way way) noexcept {
    assert(way == Way::kTcp || ring_.has_value());
    rx_ = way;
    tcp_reported_ = true;  // perhaps before it mattered
  }
  [[nodiscard]] Way sends_by() const noexcept { return tx_; }
  [[nodiscard]] Way receives_by() const noexcept { return rx_; }

  [[nodiscard]] PathTransport* movable() noexcept override { return this; }
  [[nodiscard]] std::ptrdiff_t send(std::span<const Slice> slices) override;
  [[nodiscard]] std::ptrdiff_t receive(std::span<const Slice> slices) override;
  [[nodiscard]] std::span<std::uint8_t> room() noexcept override;
  void sent_there(std::size_t n) noexcept override {
    assert(tx_ == Way::kRing && ring_.has_value());
    ring_->commit(n);
  }
  [[nodiscard]] std::span<const std::uint8_t> view() noexcept override;
  void taken(std::size_t n) noexcept override {
    if (ring_) ring_->consume(n);
  }
  [[nodiscard]] int fd() const noexcept override { return tcp_.fd(); }
  [[nodiscard]] int bell() const noexcept override { return ring_ ? ring_->bell() : -1; }
  void reported() noexcept override { tcp_reported_ = true; }
  [[nodiscard]] std::uint32_t events(bool blocked) const noexcept override;
  void attend() noexcept override;
  [[nodiscard]] bool settle() noexcept override;
  void shutdown_send() noexcept override;
  void close(bool reset) noexcept override;
  [[nodiscard]] PeerLiveness liveness() const override;
  void keep_alive(Duration limit) override { tcp_.keep_alive(limit); }
  [[nodiscard]] std::uint64_t unacknowledged() const override;
  [[nodiscard]] const char* path() const noexcept override;
  [[nodiscard]] bool may_have_room() const noexcept override;
  [[nodiscard]] bool short_read_is_all() const noexcept override {
    // Whoever attends to the ring asks again anyway; a sleeper has to say that it sleeps, in
    // receive(). On TCP beside a ring, what fd() reports is not told apart: octets, or an end.
    return rx_ == Way::kTcp ? !ring_ && !tcp_reported_ : attended_;
  }
  [[nodiscard]] bool cheap_to_look_at() const noexcept override { return rx_ == Way::kRing; }
  [[nodiscard]] bool is_quiet() noexcept override;
  [[nodiscard]] std::size_t read_ahead() const noexcept override;

 private:
  [[nodiscard]] std::ptrdiff_t look_at_tcp() noexcept;
  [[nodiscard]] bool tcp_look_due() noexcept;
  [[nodiscard]] bool announce() noexcept;

  TcpTransport tcp_;
  std::optional<shm::Ring> ring_;
  os::Fd left_bell_;
  Way tx_ = Way::kTcp;
  Way rx_ = Way::kTcp;
  bool unsafe_ = false;  // secure_ring() has failed
  bool attended_ = false;
  bool tcp_reported_ = true;               // there may be something on TCP, beside the ring
  bool blocked_ = false;                   // the last send() found no room for all
  std::uint32_t empty_ = 0;                // looks at the ring since the last one at TCP
  std::optional<std::ptrdiff_t> tcp_end_;  // what TCP has said last: 0, or an error
};

}  // namespace weft::io
