#include "verbs/setup_socket.h"

#include <sys/socket.h>

#include <utility>

#include "io/socket.h"
#include "os/calls.h"

namespace weft::verbs {

os::Fd SetupSocket::hand_over() {
  stand_down();
  return std::move(fd_);
}

void SetupSocket::close(bool with_reset) {
  if (!fd_) return;
  if (trace_ != nullptr) {
    with_reset ? trace_->reset(true) : trace_->tx_fin();
    trace_.reset();
  }
  os::Fd fd = std::move(fd_);
  if (with_reset) {
    io::close_with_reset(std::move(fd));
  } else {
    // FIN goes out even if a child of fork() holds the socket too.
    ::shutdown(fd.get(), SHUT_WR);
  }
}

void SetupSocket::watch(std::uint32_t events) {
  if (watching_ && watched_ == events) return;
  const Status done =
      watching_ ? engine_.modify(fd_.get(), events) : engine_.add(fd_.get(), events, owner_);
  if (!done) lack_ = done.error();
  watching_ = watching_ || done;
  watched_ = events;
}

void SetupSocket::unwatch() {
  if (watching_) engine_.forget(fd_.get());
  watching_ = false;
}

void SetupSocket::set_timer(Instant at) {
  if (at == timer_at_) return;
  clear_timer();
  if (at.is_never()) return;
  timer_at_ = at;
  timer_ = engine_.schedule(at, owner_);
  if (timer_ == 0) lack_ = Error::kNoMemory;
}

void SetupSocket::clear_timer() {
  engine_.forget_timer(timer_);
  timer_ = 0;
  timer_at_ = Instant::never();
}

bool SetupSocket::is_time(io::TimerId id) noexcept {
  if (id != timer_) return false;
  timer_ = 0;
  timer_at_ = Instant::never();
  return true;
}

ssize_t SetupSocket::send(std::span<const std::uint8_t> octets) {
  const ssize_t n =
      os::calls::send(fd_.get(), octets.data(), octets.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0 && trace_ != nullptr) trace_->tx(octets.first(static_cast<std::size_t>(n)));
  return n;
}

ssize_t SetupSocket::receive(std::span<std::uint8_t> room) {
  const ssize_t n = os::calls::recv(fd_.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (trace_ == nullptr) return n;
  if (n > 0) trace_->rx(room.first(static_cast<std::size_t>(n)));
  if (n == 0) trace_->rx_fin();
  return n;
}

}  // namespace weft::verbs
