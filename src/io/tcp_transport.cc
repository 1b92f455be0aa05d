#include "io/tcp_transport.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cassert>
#include <cerrno>
#include <cstddef>

#include "io/socket.h"
#include "os/calls.h"

namespace weft::io {

namespace {

// The kernel takes lists of slices as they are.
static_assert(sizeof(Slice) == sizeof(iovec) &&
              offsetof(Slice, data) == offsetof(iovec, iov_base) &&
              offsetof(Slice, size) == offsetof(iovec, iov_len));

msghdr message_of(std::span<const Slice> slices) {
  msghdr message{};
  message.msg_iov = reinterpret_cast<iovec*>(const_cast<Slice*>(slices.data()));
  message.msg_iovlen = slices.size();
  return message;
}

std::ptrdiff_t error_of(int error) {
  assert(error > 0 && error != EINTR);
  if (error == EWOULDBLOCK) return -EAGAIN;
  return -error;
}

}  // namespace

std::ptrdiff_t TcpTransport::send(std::span<const Slice> slices) {
  while (true) {
    ssize_t n = 0;
    if (slices.size() == 1) {
      n = os::calls::send(socket_.get(), slices[0].data, slices[0].size,
                          MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      const msghdr message = message_of(slices);
      n = os::calls::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (n >= 0) return n;
    if (errno != EINTR) return error_of(errno);
  }
}

std::ptrdiff_t TcpTransport::receive(std::span<const Slice> slices) {
  while (true) {
    ssize_t n = 0;
    if (slices.size() == 1) {
      n = os::calls::recv(socket_.get(), slices[0].data, slices[0].size, MSG_DONTWAIT);
    } else {
      msghdr message = message_of(slices);
      n = os::calls::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    }
    if (n >= 0) return n;
    if (errno != EINTR) return error_of(errno);
  }
}

std::ptrdiff_t TcpTransport::peek() const noexcept {
  std::uint8_t octet = 0;
  while (true) {
    const ssize_t n = os::calls::recv(socket_.get(), &octet, sizeof octet, MSG_PEEK | MSG_DONTWAIT);
    if (n >= 0) return n;
    if (errno != EINTR) return error_of(errno);
  }
}

std::uint32_t TcpTransport::events(bool blocked) const noexcept {
  return EPOLLIN | EPOLLRDHUP | EPOLLET | (blocked ? EPOLLOUT : 0U);
}

void TcpTransport::shutdown_send() noexcept { ::shutdown(socket_.get(), SHUT_WR); }

void TcpTransport::close(bool reset) noexcept {
  if (reset) {
    close_with_reset(std::move(socket_));
  } else {
    socket_.reset();
  }
}

PeerLiveness TcpTransport::liveness() const {
  tcp_info info{};
  socklen_t size = sizeof info;
  PeerLiveness out;
  if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return out;
  constexpr std::int64_t kNsPerMs = 1'000'000;
  out.unacknowledged = unacknowledged();
  out.acknowledged = info.tcpi_bytes_acked;
  out.silent = Duration{std::int64_t{info.tcpi_last_ack_recv} * kNsPerMs};
  return out;
}

void TcpTransport::keep_alive(Duration limit) { io::keep_alive(socket_.get(), limit); }

std::uint64_t TcpTransport::unacknowledged() const { return io::unacknowledged(socket_.get()); }

}  // namespace weft::io
