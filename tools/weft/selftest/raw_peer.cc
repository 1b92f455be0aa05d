#include "raw_peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace raw {
namespace {

constexpr std::uint64_t kInterval = 512;

[[noreturn]] void fail_errno(const char* what) {
  throw Failure(std::string(what) + ": " + std::strerror(errno));
}

void set_option(int fd, int level, int name, int value, const char* what) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) fail_errno(what);
}

int open_socket(const SocketOptions& options, int family = AF_INET) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail_errno("socket");
  if (options.receive_buffer_bytes != 0) {
    set_option(fd, SOL_SOCKET, SO_RCVBUF, options.receive_buffer_bytes, "SO_RCVBUF");
  }
  if (options.mss_bytes != 0) {
    set_option(fd, IPPROTO_TCP, TCP_MAXSEG, options.mss_bytes, "TCP_MAXSEG");
  }
  return fd;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool ready(int fd, short events, milliseconds limit) {
  pollfd p{.fd = fd, .events = events, .revents = 0};
  return ::poll(&p, 1, static_cast<int>(limit.count())) > 0;
}

std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fail_errno("getsockname");
  }
  return ntohs(address.sin_port);
}

}  // namespace

const char* to_string(End end) {
  switch (end) {
    case End::kOpen: return "open";
    case End::kFin: return "closed with FIN";
    default: return "reset";
  }
}

Peer::Peer(int fd) : fd_(fd) {
  if (fd_ >= 0) set_option(fd_, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
}
Peer::~Peer() { close(); }

Peer::Peer(Peer&& other) noexcept { *this = std::move(other); }
Peer& Peer::operator=(Peer&& other) noexcept {
  if (this == &other) return *this;
  close();
  framing = other.framing;
  patience = other.patience;
  names_lines = other.names_lines;
  fd_ = std::exchange(other.fd_, -1);
  ring_ = std::move(other.ring_);
  inbox_ = std::move(other.inbox_);
  taken_ = other.taken_;
  end_ = other.end_;
  sent_ = other.sent_;
  received_ = other.received_;
  return *this;
}

Peer Peer::connect(std::uint16_t port, const SocketOptions& options) {
  Peer peer(open_socket(options));
  const sockaddr_in address = loopback(port);
  if (::connect(peer.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail_errno("connect");
  }
  return peer;
}

Peer Peer::connect(const sockaddr* address, socklen_t length, milliseconds patience) {
  Peer peer(open_socket({}, address->sa_family));
  peer.patience = patience;
  const int flags = ::fcntl(peer.fd_, F_GETFL);
  ::fcntl(peer.fd_, F_SETFL, flags | O_NONBLOCK);
  if (::connect(peer.fd_, address, length) != 0 && errno != EINPROGRESS) fail_errno("connect");
  if (!ready(peer.fd_, POLLOUT, patience)) throw Failure("connect: no answer");
  socklen_t size = sizeof errno;
  ::getsockopt(peer.fd_, SOL_SOCKET, SO_ERROR, &errno, &size);
  if (errno != 0) fail_errno("connect");
  ::fcntl(peer.fd_, F_SETFL, flags);
  return peer;
}

std::string Peer::where(int line) const {
  return names_lines ? "line " + std::to_string(line) + ": " : "";
}

void Peer::fail(int line, const std::string& what) const { throw Failure(where(line) + what); }

void Peer::move_to_ring(int line) {
  auto ring = std::make_unique<RingEnd>();
  const auto is = [&ring](const Segment& s, PathWord word) {
    return s.whole == ring->message(word);
  };
  send_fpdu(ring->message(PathWord::kName));
  send_fpdu(ring->message(PathWord::kProof));
  Segment answer;
  try {
    answer = recv_segment(line);
  } catch (const Cut&) {
    fail(line, "the peer does not answer the offer of a ring");
  }
  if (is(answer, PathWord::kRefused)) fail(line, "the peer refuses a ring");
  if (!is(answer, PathWord::kAnswered)) {
    fail(line, "no answer to the offer of a ring: " + to_hex(answer.whole));
  }
  ring->take();
  send_fpdu(ring->message(PathWord::kByRing));
  const Segment last = recv_segment(line);
  if (!is(last, PathWord::kByRing)) fail(line, "the peer stays on TCP: " + to_hex(last.whole));
  if (has_unread()) fail(line, "octets by TCP behind the last ones");
  ring_ = std::move(ring);
  framing.crc = framing.markers_in = framing.markers_out = false;
  framing.unused_crc = 0;
  framing.any_unused_crc = false;
}

// 0: no room, or nothing taken for as long as is waited.
std::size_t Peer::send_some(View bytes) {
  if (ring_ == nullptr) {
    if (!ready(fd_, POLLOUT, patience)) return 0;
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) fail_errno("send");
    return static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    const std::size_t n = ring_->send(bytes);
    if (n != 0 || std::chrono::steady_clock::now() > deadline) return n;
    // Only a reset ends a stream that may still be written.
    pollfd p{.fd = fd_, .events = 0, .revents = 0};
    if (::poll(&p, 1, 1) > 0) throw Failure("send: the connection has ended");
  }
}

void Peer::send(View bytes) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!bytes.empty()) {
    const std::size_t n = send_some(bytes);
    bytes = bytes.subspan(n);
    if (n == 0 && std::chrono::steady_clock::now() > deadline) {
      throw Failure("the peer does not read");
    }
  }
}

void Peer::send_in_pieces(View bytes, std::size_t piece) {
  while (!bytes.empty()) {
    const std::size_t n = std::min(piece, bytes.size());
    send(bytes.first(n));
    bytes = bytes.subspan(n);
    std::this_thread::sleep_for(std::chrono::microseconds(30));
  }
}

bool Peer::fill(milliseconds limit) {
  if (end_ != End::kOpen) return false;
  if (taken_ == inbox_.size()) {
    inbox_.clear();
    taken_ = 0;
  }
  if (ring_ != nullptr) return fill_from_ring(limit);
  return ready(fd_, POLLIN, limit) && fill_from_tcp();
}

bool Peer::fill_from_tcp() {
  constexpr std::size_t kChunk = 65536;
  const std::size_t had = inbox_.size();
  inbox_.resize(had + kChunk);
  const ssize_t n = ::recv(fd_, inbox_.data() + had, kChunk, 0);
  inbox_.resize(had + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  if (n == 0) end_ = End::kFin;
  if (n < 0) end_ = End::kReset;
  return n > 0;
}

bool Peer::fill_from_ring(milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    // The end, as TCP tells it, stands behind all that is in the ring by then.
    const bool ended = ready(fd_, POLLIN, milliseconds(0));
    const Bytes came = ring_->receive();
    inbox_ += came;
    if (!came.empty()) return true;
    if (ended) {
      if (fill_from_tcp()) throw Failure("octets by TCP, though the stream is on the ring");
      return false;
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (ring_->prepare_sleep()) {
      std::array<pollfd, 2> sources{{{fd_, POLLIN, 0}, {ring_->bell(), POLLIN, 0}}};
      ::poll(sources.data(), sources.size(), static_cast<int>(left.count()));
    }
    ring_->awake();
  }
}

Bytes Peer::take(std::size_t count, int line, const char* what) {
  while (inbox_.size() - taken_ < count) {
    if (fill(patience)) continue;
    const std::size_t have = inbox_.size() - taken_;
    throw Cut(where(line) + "waiting for " + what + ": " + std::to_string(have) + " of " +
              std::to_string(count) + " octets, connection " + to_string(end_));
  }
  const auto first = inbox_.begin() + static_cast<std::ptrdiff_t>(taken_);
  taken_ += count;
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

Bytes Peer::recv(std::size_t count, int line) { return take(count, line, "octets"); }

bool Peer::quiet(milliseconds span) {
  if (taken_ < inbox_.size() || end_ != End::kOpen) return false;
  return !fill(span) && end_ == End::kOpen;
}

End Peer::drain(int line) {
  taken_ = inbox_.size();
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (fill(patience)) {
    taken_ = inbox_.size();
    if (std::chrono::steady_clock::now() > deadline) break;
  }
  if (end_ == End::kOpen) fail(line, "the peer does not close");
  return end_;
}

void Peer::expect_closed(int line) {
  while (fill(patience)) {
  }
  if (taken_ < inbox_.size()) {
    const View rest = View(inbox_).subspan(taken_);
    fail(line, "octets where the end was expected: " + to_hex(rest));
  }
  if (end_ == End::kOpen) fail(line, "the peer does not close");
}

void Peer::expect_fin(int line) {
  expect_closed(line);
  if (end_ != End::kFin)
    fail(line, "expected FIN, but the connection is " + std::string(to_string(end_)));
}

void Peer::expect_reset(int line) {
  expect_closed(line);
  if (end_ != End::kReset)
    fail(line, "expected a reset, but it is " + std::string(to_string(end_)));
}

void Peer::shutdown_write() {
  if (ring_ != nullptr) ring_->close_sending();
  ::shutdown(fd_, SHUT_WR);
}

void Peer::reset() {
  const linger hard{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close();
}

void Peer::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  ring_.reset();
}

int Peer::effective_mss() const {
  int mss = 0;
  socklen_t length = sizeof mss;
  if (::getsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &mss, &length) != 0) fail_errno("TCP_MAXSEG");
  return mss;
}

std::uint16_t Peer::local_port() const { return port_of(fd_); }

MpaFrame Peer::recv_mpa(int line) {
  const Bytes head = take(kMpaHeader, line, "a start-up frame");
  MpaFrame frame{.key = Bytes(head.begin(), head.begin() + 16),
                 .flags = head[16],
                 .revision = head[17],
                 .pd = {}};
  const std::uint16_t length = get16(head, 18);
  if (length > 512) fail(line, "PD_Length above 512 from the peer");
  frame.pd = take(length, line, "private data");
  return frame;
}

void Peer::put_marker_if_due(Bytes& out, std::uint64_t start, bool inside, const Spoil& spoil) {
  if (!framing.markers_out || sent_ % kInterval != 0) return;
  const auto pointer = static_cast<std::uint16_t>(inside ? sent_ - start : 0);
  put16(out, spoil.marker_high);
  put16(out, static_cast<std::uint16_t>(pointer ^ spoil.marker_xor));
  sent_ += 4;
}

Bytes Peer::frame(const Bytes& ulpdu, const Spoil& spoil) {
  Bytes body;
  put16(body, static_cast<std::uint32_t>(static_cast<int>(ulpdu.size()) + spoil.length_delta));
  body += ulpdu;
  while (body.size() % 4 != 0) body.push_back(spoil.pad);

  Bytes out;
  put_marker_if_due(out, 0, false, spoil);
  const std::uint64_t start = sent_;
  for (std::size_t at = 0; at < body.size(); at += 4) {
    if (at != 0) put_marker_if_due(out, start, true, spoil);
    const auto word = body.begin() + static_cast<std::ptrdiff_t>(at);
    out.insert(out.end(), word, word + 4);
    sent_ += 4;
  }
  put_marker_if_due(out, start, true, spoil);
  const std::uint32_t crc = (framing.crc ? crc32c(out) : framing.unused_crc) ^ spoil.crc_xor;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    out.push_back(static_cast<std::uint8_t>(crc >> shift));
  }
  sent_ += 4;
  return out;
}

void Peer::send_fpdu(const Bytes& ulpdu, const Spoil& spoil) { send(frame(ulpdu, spoil)); }

void Peer::send_fpdus(const std::vector<Bytes>& ulpdus) {
  Bytes all;
  for (const Bytes& u : ulpdus) all += frame(u);
  send(all);
}

void Peer::take_marker_if_due(Bytes& covered, std::uint64_t start, bool inside, int line) {
  if (!framing.markers_in || received_ % kInterval != 0) return;
  const Bytes marker = take(4, line, "a marker");
  const std::uint32_t expected = inside ? static_cast<std::uint32_t>(received_ - start) : 0;
  if (get32(marker, 0) != expected) {
    fail(line, "marker " + to_hex(marker) + " at " + std::to_string(received_) +
                   " should point back by " + std::to_string(expected));
  }
  covered += marker;
  received_ += 4;
}

Bytes Peer::recv_ulpdu(int line) {
  Bytes covered;
  take_marker_if_due(covered, 0, false, line);
  const std::uint64_t start = received_;
  Bytes body = take(4, line, "an FPDU");
  covered += body;
  received_ += 4;
  const std::size_t length = get16(body, 0);
  const std::size_t total = (length + 2 + 3) / 4 * 4;
  while (body.size() < total) {
    take_marker_if_due(covered, start, true, line);
    const std::size_t room = framing.markers_in ? kInterval - received_ % kInterval : total;
    const Bytes piece = take(std::min(room, total - body.size()), line, "the rest of an FPDU");
    body += piece;
    covered += piece;
    received_ += piece.size();
  }
  take_marker_if_due(covered, start, true, line);
  const Bytes field = take(4, line, "a CRC field");
  received_ += 4;
  std::uint32_t crc = 0;
  for (unsigned i = 0; i < 4; ++i) crc |= static_cast<std::uint32_t>(field[i]) << 8 * i;
  const bool checked = framing.crc || !framing.any_unused_crc;
  if (checked && crc != (framing.crc ? crc32c(covered) : 0)) {
    fail(line, "wrong CRC field in " + to_hex(covered));
  }
  if (length > 64768) fail(line, "a ULPDU longer than a sender may make it");
  for (std::size_t i = 2 + length; i < total && !framing.any_pad; ++i) {
    if (body[i] != 0) fail(line, "pad is not zero in " + to_hex(body));
  }
  return {body.begin() + 2, body.begin() + static_cast<std::ptrdiff_t>(2 + length)};
}

Segment Peer::recv_segment(int line) { return parse(recv_ulpdu(line)); }

Segment Peer::recv_segment(Opcode opcode, int line) {
  Segment s = recv_segment(line);
  if (s.opcode != opcode) {
    fail(line, "expected opcode " + std::to_string(opcode) + ", got " + to_hex(s.whole));
  }
  return s;
}

std::vector<Segment> Peer::recv_to_end(int line) {
  std::vector<Segment> out;
  for (;;) {
    while (inbox_.size() - taken_ < 8 && fill(patience)) {
    }
    if (inbox_.size() - taken_ < 8) {
      if (end_ == End::kOpen) fail(line, "the peer neither sends nor closes");
      return out;
    }
    try {
      out.push_back(recv_segment(line));
    } catch (const Cut&) {
      if (end_ == End::kOpen) throw;
      return out;
    }
  }
}

void Peer::expect_terminate(Code code, Attach attach, const Bytes& offending, int line) {
  const Bytes expected = terminate(code, attach, offending);
  const Bytes got = recv_ulpdu(line);
  if (got != expected) {
    fail(line, "expected Terminate " + to_string(code) + "\n  want " + to_hex(expected) +
                   "\n  got  " + to_hex(got));
  }
}

void Peer::expect_terminate_code(Code code, int line) {
  const Segment s = recv_segment(kTerminate, line);
  const auto want_first = static_cast<std::uint8_t>(code.layer << 4 | code.type);
  const bool shape = s.last && s.msn == 1 && s.mo == 0 && s.payload.size() >= 4;
  if (!shape || s.payload[0] != want_first || s.payload[1] != code.code) {
    fail(line, "expected Terminate " + to_string(code) + ", got " + to_hex(s.whole));
  }
  expect_fin(line);
}

Listener::Listener(const SocketOptions& options) : fd_(open_socket(options)) {
  const sockaddr_in address = loopback(0);
  if (::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd_, 16) != 0) {
    fail_errno("listen");
  }
  port_ = port_of(fd_);
}
Listener::~Listener() { close(); }

void Listener::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Peer Listener::accept(int line) {
  if (!ready(fd_, POLLIN, kPatience)) {
    throw Failure("line " + std::to_string(line) + ": nobody connects");
  }
  const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) fail_errno("accept");
  return Peer(fd);
}

}  // namespace raw
