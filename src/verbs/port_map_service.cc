#include "verbs/port_map_service.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "io/socket.h"
#include "os/calls.h"
#include "os/cancel.h"
#include "verbs/random.h"
#include "wire/port_map.h"

namespace weft::verbs {

namespace {

Result<os::Fd> open_datagram_socket(int family) {
  const int fd = ::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(io::error_from_errno(errno));
  return os::Fd::closed_in_child(fd);
}

// The address that was asked answers, also on a machine with several.
void want_packet_info(int fd, int family) {
  const int on = 1;
  if (family == AF_INET6) {
    static_cast<void>(::setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on));
  } else {
    static_cast<void>(::setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
  }
}

// The route decides about the interface, except to addresses that mean something on one link only.
void forget_interface(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      in_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      info.ipi_ifindex = 0;
      std::memcpy(CMSG_DATA(c), &info, sizeof info);
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      if (!IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) info.ipi6_ifindex = 0;
      std::memcpy(CMSG_DATA(c), &info, sizeof info);
    }
  }
}

}  // namespace

// --- the end that is asked ---

Result<std::shared_ptr<ServicePort>> ServicePort::take(const SocketAddress& local, bool v6_only,
                                                       bool roce_like) {
  auto socket = open_datagram_socket(local.family());
  if (!socket) return fail(socket.error());
  if (auto bound = io::bind_socket(socket->get(), local, false, v6_only); !bound) {
    return fail(bound.error());
  }
  want_packet_info(socket->get(), local.family());
  const SocketAddress address = io::local_address(socket->get());
  return std::shared_ptr<ServicePort>(new ServicePort(std::move(*socket), address, roce_like));
}

Status ServicePort::serve(io::Engine& engine, std::uint16_t tcp_port) {
  tcp_port_.store(tcp_port);
  return engine.add(socket_.get(), EPOLLIN, weak_from_this());
}

void ServicePort::close(io::Engine& engine) {
  engine.remove(socket_.get());
  socket_.reset();
}

// Most come alone; others are reported.
void ServicePort::on_io(std::uint32_t /*events*/) {
  std::array<std::uint8_t, PortMapMessage::kSize + 1> octets;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in6_pktinfo))> control;
  sockaddr_storage asker{};
  iovec piece{octets.data(), octets.size()};
  msghdr message{};
  message.msg_name = &asker;
  message.msg_namelen = sizeof asker;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = os::calls::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (n < 0 || static_cast<std::size_t>(n) != PortMapMessage::kSize) return;
  ByteReader in(std::span<const std::uint8_t>(octets).first(PortMapMessage::kSize));
  const auto question = decode_port_map(in);
  if (!question || question->kind != PortMapKind::kQuestion || question->port != address_.port()) {
    return;
  }
  ByteWriter out(octets);
  encode(PortMapMessage{PortMapKind::kAnswer, tcp_port_.load(), roce_like_, question->nonce}, out);
  piece.iov_len = PortMapMessage::kSize;
  message.msg_flags = 0;
  forget_interface(message);
  static_cast<void>(os::calls::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

// --- the end that asks ---

Result<PortQuestion> PortQuestion::open(const SocketAddress& local, const SocketAddress& peer) {
  auto socket = open_datagram_socket(peer.family());
  if (!socket) return fail(socket.error());
  if (local.family() == peer.family() && !local.is_any()) {
    SocketAddress from = local;
    from.set_port(0);
    if (auto bound = io::bind_socket(socket->get(), from, false, false); !bound) {
      return fail(bound.error());
    }
  }
  if (auto connected = io::begin_connect(socket->get(), peer); !connected) {
    return fail(connected.error());
  }
  PortQuestion out;
  out.socket_ = std::move(*socket);
  out.port_ = peer.port();
  out.nonce_ = random_u64();
  return out;
}

void PortQuestion::ask() {
  std::array<std::uint8_t, PortMapMessage::kSize> octets;
  ByteWriter out(octets);
  encode(PortMapMessage{PortMapKind::kQuestion, port_, false, nonce_}, out);
  static_cast<void>(
      os::calls::send(socket_.get(), octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

void PortQuestion::renew() { nonce_ = random_u64(); }

Result<PortQuestion::Answer> PortQuestion::take() {
  for (;;) {
    std::array<std::uint8_t, PortMapMessage::kSize + 1> octets;
    const ssize_t n = os::calls::recv(socket_.get(), octets.data(), octets.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return fail(Error::kTimedOut);
    if (n < 0) return fail(Error::kRefused);
    if (static_cast<std::size_t>(n) != PortMapMessage::kSize) continue;
    ByteReader in(std::span<const std::uint8_t>(octets).first(PortMapMessage::kSize));
    const auto message = decode_port_map(in);
    if (!message || message->kind != PortMapKind::kAnswer || message->nonce != nonce_) continue;
    return Answer{message->port, message->roce_like};
  }
}

}  // namespace weft::verbs
