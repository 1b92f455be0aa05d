#include "weft/endpoint/tcp.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <numeric>

namespace weft::cli {
namespace {

// Up to here trying every socket is cheaper than asking epoll.
constexpr std::size_t kScanLinks = 8;

Failure lost(int error) {
  const char* why = error == 0 ? "closed by the other side" : std::strerror(error);
  return {fmt::format("the TCP connection has ended: {}", why)};
}

bool would_block(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

TcpTest::TcpTest(const TestSpec& spec, const SocketChoice& choice, std::uint32_t events)
    : spec_(spec), choice_(choice), events_(events) {
  links_.resize(spec_.connections);
  idle_.resize(spec_.idle);
  // Only a receiver has several messages under way with different contents.
  const bool receives = events == EPOLLIN;
  buffer_.assign(spec_.size * (receives ? spec_.connections : 1), 0);
  if (spec_.tcp_mode == TcpMode::kCopy) place_.assign(spec_.size, 0);
  ready_.resize(spec_.connections);
  std::iota(ready_.begin(), ready_.end(), 0U);
}

std::size_t TcpTest::total_links() const { return links_.size() + idle_.size(); }

bool TcpTest::uses_epoll() const {
  return links_.size() > kScanLinks || (spec_.sleep && links_.size() > 1);
}

void TcpTest::adopt(std::uint32_t index, UniqueFd fd) {
  set_no_delay(fd.get());
  if (index >= links_.size()) {
    idle_[index - links_.size()] = std::move(fd);
    return;
  }
  if (spec_.sleep && links_.size() == 1) {
    set_io_timeout(fd.get(), kTcpIoTimeoutMs);
  } else {
    set_nonblocking(fd.get(), true);
  }
  links_[index].fd = std::move(fd);
}

void TcpTest::all_connected() {
  if (!uses_epoll()) return;
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  for (std::uint32_t i = 0; i < links_.size(); ++i) {
    epoll_event event{};
    event.events = events_;
    event.data.u32 = i;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, links_[i].fd.get(), &event);
  }
}

std::span<const std::uint32_t> TcpTest::ready_links() {
  if (!epoll_) return ready_;
  std::array<epoll_event, 64> events{};
  const int timeout_ms = spec_.sleep ? kTcpIoTimeoutMs : 0;
  const int n =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  ready_.clear();
  for (int i = 0; i < n; ++i) ready_.push_back(events[static_cast<std::size_t>(i)].data.u32);
  return ready_;
}

Outcome<bool> TcpTest::send_some(TcpLink& link, const std::uint8_t* message) {
  const ssize_t n =
      send(link.fd.get(), message + link.offset, spec_.size - link.offset, MSG_NOSIGNAL);
  if (n < 0) {
    if (would_block(errno)) return false;
    return tl::unexpected(lost(errno));
  }
  link.offset += static_cast<std::uint64_t>(n);
  if (link.offset < spec_.size) return false;
  link.offset = 0;
  return true;
}

Outcome<bool> TcpTest::receive_some(TcpLink& link, std::uint8_t* message) {
  // A blocked receiver is woken once per message, not once per segment.
  const int flags = spec_.sleep && !epoll_ ? MSG_WAITALL : 0;
  const ssize_t n = recv(link.fd.get(), message + link.offset, spec_.size - link.offset, flags);
  if (n <= 0) {
    if (n < 0 && would_block(errno)) return false;
    return tl::unexpected(lost(n == 0 ? 0 : errno));
  }
  link.offset += static_cast<std::uint64_t>(n);
  if (link.offset < spec_.size) return false;
  link.offset = 0;
  return true;
}

Outcome<void> TcpTest::send_message(TcpLink& link, const std::uint8_t* message, Watch& watch) {
  while (true) {
    const auto done = send_some(link, message);
    if (!done) return tl::unexpected(watch.explain(done.error()));
    if (*done) return {};
    if (auto ok = pause(link, POLLOUT, watch); !ok) return ok;
  }
}

Outcome<void> TcpTest::pause(const TcpLink& link, short events, Watch& watch) {
  if (!spec_.sleep) return ++pauses_ % 512 == 0 ? watch.check() : Outcome<void>();
  if (epoll_) {
    pollfd p{link.fd.get(), events, 0};
    poll(&p, 1, kTcpIoTimeoutMs);
  }
  return watch.check();
}

Outcome<void> TcpTest::receive_bytes(TcpLink& link, std::uint8_t* to, std::size_t size,
                                     Watch& watch) {
  const int flags = spec_.sleep && !epoll_ ? MSG_WAITALL : 0;
  while (size > 0) {
    const ssize_t n = recv(link.fd.get(), to, size, flags);
    if (n > 0) {
      to += n;
      size -= static_cast<std::size_t>(n);
      continue;
    }
    if (n == 0 || !would_block(errno))
      return tl::unexpected(watch.explain(lost(n == 0 ? 0 : errno)));
    if (auto ok = pause(link, POLLIN, watch); !ok) return ok;
  }
  return {};
}

LinkFacts TcpTest::link_facts() const {
  LinkFacts facts;
  if (links_.empty() || !links_.front().fd) return facts;
  const int fd = links_.front().fd.get();
  facts.congestion = congestion_of(fd);
  facts.send_buffer_bytes = send_buffer_of(fd);
  facts.receive_buffer_bytes = receive_buffer_of(fd);
  return facts;
}

}  // namespace weft::cli
