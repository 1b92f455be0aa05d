// TCP: set-up, readiness and the end. tcp_transfer.cc moves the bytes.
#include "exs/tcp/tcp_socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "os/cancel.h"
#include "os/fd.h"

namespace weft::exs {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(1);
// A message in the middle that is cancelled, and of which no octet moves for so long, has stopped.
constexpr auto kStuck = std::chrono::seconds(1);

bool ready_for(int fd, short events) {
  pollfd one{fd, events, 0};
  return os::uncancelled([&] { return ::poll(&one, 1, 0); }) == 1;
}

}  // namespace

TcpSocket::TcpSocket(Socket& socket) : s_(socket), engine_(Engine::instance()) {
  const int flags = ::fcntl(s_.fd, F_GETFL);
  nonblocking_ = (flags & O_NONBLOCK) != 0;
  if (!s_.foreign) {
    ::fcntl(s_.fd, F_SETFL, flags | O_NONBLOCK);
    nonblocking_ = true;
    const int one = 1;
    ::setsockopt(s_.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
}

TcpSocket::~TcpSocket() { unwatch(); }

int TcpSocket::watch() {
  if (number_ > 0) return 0;
  number_ = engine_.watch(s_.fd, s_.shared_from_this());
  return number_ < 0 ? errno : 0;
}

void TcpSocket::unwatch() {
  // Under a number that is another socket's now, that one is watched.
  const int fd = s_.descriptor_lost ? -1 : s_.fd;
  if (number_ > 0) engine_.unwatch(fd, static_cast<std::uint32_t>(number_));
  number_ = 0;
}

int TcpSocket::adopt() {
  assert(s_.foreign && (s_.state == State::kListening || s_.state == State::kConnected));
  return watch();
}

int TcpSocket::bind(const Address& address) {
  const int one = 1;
  ::setsockopt(s_.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  return ::bind(s_.fd, address.get(), address.length) == 0 ? 0 : errno;
}

int TcpSocket::listen(int backlog) {
  // Over TCP a listener has the one port that it is bound to.
  Address name;
  const int wanted = s_.settings.tcp_port;
  if (wanted > 0 && local(name) == 0 && name.port() != wanted) return EOPNOTSUPP;
  if (::listen(s_.fd, backlog) != 0) return errno;
  return watch();
}

int TcpSocket::connect(const Address& address) {
  // A socket of the application's that blocks is made to block only for what it calls itself.
  if (!nonblocking_) ::fcntl(s_.fd, F_SETFL, ::fcntl(s_.fd, F_GETFL) | O_NONBLOCK);
  const int got = os::uncancelled([&] { return ::connect(s_.fd, address.get(), address.length); });
  const int error = got == 0 ? 0 : errno;
  if (!nonblocking_) ::fcntl(s_.fd, F_SETFL, ::fcntl(s_.fd, F_GETFL) & ~O_NONBLOCK);
  if (error != 0 && error != EINPROGRESS) return error;
  // Its report comes even if the connection stands already.
  return watch();
}

void TcpSocket::finish_connect() {
  assert(s_.state == State::kConnecting && number_ > 0);
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(s_.fd, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0 && !ready_for(s_.fd, POLLOUT)) return;
  if (error != 0) unwatch();
  s_.connected(error);
}

int TcpSocket::local(Address& out) const {
  out.length = sizeof out.storage;
  return ::getsockname(s_.fd, out.get(), &out.length) == 0 ? 0 : errno;
}

int TcpSocket::peer(Address& out) const {
  out.length = sizeof out.storage;
  return ::getpeername(s_.fd, out.get(), &out.length) == 0 ? 0 : errno;
}

bool TcpSocket::readable() const { return ready_for(s_.fd, POLLIN); }

bool TcpSocket::writable() const { return ready_for(s_.fd, POLLOUT); }

void TcpSocket::on_ready(std::uint32_t epoll_events) {
  if (s_.state == State::kConnecting) finish_connect();
  if (s_.state == State::kListening) accepts_posted();
  if (s_.state == State::kConnected) {
    if ((epoll_events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) pump_receives();
    if (s_.state == State::kConnected) pump_sends();
    if (s_.state == State::kConnected) advance_end();
  }
  s_.changed();
}

void TcpSocket::accepts_posted() {
  while (!s_.ops.accepts.empty()) {
    // A listener of the application's may block.
    if (!nonblocking_ && !readable()) return;
    Address peer;
    peer.length = sizeof peer.storage;
    os::Fd fd(os::uncancelled(
        [&] { return ::accept4(s_.fd, peer.get(), &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC); }));
    if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd && errno == EAGAIN) return;
    if (!fd) {
      s_.finish_front(s_.ops.accepts, errno, 0);
      continue;
    }
    if (const int error = take_in(fd, peer); error != 0) s_.finish_front(s_.ops.accepts, error, 0);
  }
}

// A connection for the first accept. 0, or the errno with which that ends; then `fd` is not taken.
int TcpSocket::take_in(os::Fd& fd, const Address& peer) try {
  Arrival arrival;
  arrival.peer = peer;
  arrival.local.length = sizeof arrival.local.storage;
  ::getsockname(fd.get(), arrival.local.get(), &arrival.local.length);
  auto socket = std::make_shared<Socket>(fd.get(), s_.domain, s_.kind);
  socket->settings = s_.settings;
  socket->advance(StateEvent::kTakenOrAccepted);
  auto tcp = std::make_unique<TcpSocket>(*socket);
  TcpSocket& watched = *tcp;
  socket->provider = std::move(tcp);  // first: an event may come at once
  if (const int error = watched.watch(); error != 0) return error;
  engine_.add(socket);
  arrival.socket = std::move(socket);
  static_cast<void>(fd.release());  // Socket::closed() closes it
  [[maybe_unused]] const bool taken = s_.arrived(std::move(arrival));
  assert(taken && s_.backlog.empty());
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

// ---- the end

void TcpSocket::cancel() {
  for (auto* list : {&s_.ops.sends, &s_.ops.receives}) {
    for (auto it = list->begin(); it != list->end();) {
      const auto next = std::next(it);
      // A message that has begun has to go on: what follows would not be understood.
      const bool begun =
          framed() && it == list->begin() &&
          (it->done != 0 || it->truncated || (list == &s_.ops.sends && frame_sent_ != 0));
      if (it->cancellation.wanted() && !begun) s_.finish(*list, it, ECANCELED, it->done);
      if (begun && it->cancellation.wanted() && it->now) {
        end_begun(*list);
        if (s_.state != State::kConnected) return;
      }
      it = next;
    }
  }
  s_.look_at_cancelled_later();
}

// The message of a call that does not wait: the rest of it goes out by itself, or is for the next
// receive.
void TcpSocket::end_begun(OperationList& list) {
  Operation& op = list.front();
  assert(framed() && op.now);
  if (&list == &s_.ops.receives) {
    partial_.resize(op.done);
    copy_out(op, 0, partial_.data(), op.done);
    partial_cut_ = op.truncated;
    return s_.finish_front(list, ECANCELED, 0);
  }
  if (op.done != op.total) {
    op.files.expect();
    const int error = op.files.load(op.pieces, op.done, op.total - op.done);
    if (error != 0) return failed(error);
  }
  s_.let_go(op);
}

void TcpSocket::shut_down() {
  finish_wanted_ = true;
  advance_end();
}

void TcpSocket::close() {
  if (s_.state != State::kConnected || s_.end.abortive()) {
    if (s_.end.abortive() && !s_.descriptor_lost) {
      const linger now{1, 0};
      ::setsockopt(s_.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    unwatch();
    return s_.closed(0);
  }
  s_.finish_all(s_.ops.receives, ECANCELED);
  shut_down();
}

// A descriptor that is closed with unread data makes TCP forget what it has not delivered. So the
// end waits until the peer's TCP has everything.
void TcpSocket::advance_end() {
  if (!finish_wanted_ || !s_.ops.sends.empty()) return;
  assert(s_.end.shutting());
  if (!finish_sent_) {
    finish_sent_ = true;
    ::shutdown(s_.fd, SHUT_WR);
  }
  int unsent = 0;
  const bool some = ::ioctl(s_.fd, SIOCOUTQ, &unsent) == 0 && unsent > 0;
  const bool reset = some && is_reset();
  if (some && !reset) {
    const Instant now = Clock::now();
    if (look_again_ > now) return;  // each timer comes here
    look_again_ = now + kLookAgain;
    return engine_.schedule(s_.shared_from_this(), look_again_);
  }
  // The FIN counts as one: alone, it is no loss.
  const int failure = reset && unsent > 1 ? ECONNRESET : 0;
  s_.shut_down(failure);
  if (!s_.end.closing()) return;
  unwatch();
  s_.closed(failure);
}

// After a reset, what was not sent stays counted as such.
bool TcpSocket::is_reset() const {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(s_.fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_state == TCP_CLOSE;
}

void TcpSocket::on_time() {
  if (s_.state != State::kConnected) return;
  const Instant now = Clock::now();
  const auto stuck = [&](Operation& op) {
    return op.cancellation.is_stuck(now, op.done + frame_sent_ + message_left_, kStuck);
  };
  if (std::ranges::any_of(s_.ops.sends, stuck) || std::ranges::any_of(s_.ops.receives, stuck)) {
    log_line(s_, "connection reset", "the peer stopped in a message that has to be cancelled");
    return failed(ETIMEDOUT);
  }
  s_.look_at_cancelled_later();
  advance_end();
}

void TcpSocket::failed(int error) {
  unwatch();
  s_.failed(error);
}

}  // namespace weft::exs
