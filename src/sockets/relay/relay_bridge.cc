#include "sockets/relay/relay_bridge.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace weft::sockets {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPiece = 65536;
// Rounds in a row, then other connections have their turn.
constexpr int kTurns = 16;
constexpr std::uint32_t kEdges = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr auto kCloseLimit = std::chrono::seconds(5);
// How long a peer that was offered RDMA may take to answer, before it gets a plain connection.
constexpr auto kReplyLimit = std::chrono::seconds(3);

// Size of each ring. rdma-core's 128 KiB, offered in halves, make a sender of large pieces wait for
// each.
constexpr std::uint32_t kRingBytes = 1U << 19U;

rsockets::RsOptions bridge_options() {
  rsockets::RsOptions options;
  options.send_bytes = options.recv_bytes = kRingBytes;
  return options;
}

}  // namespace

std::shared_ptr<Device> relay_device() {
  static const std::shared_ptr<Device> device = [] {
    auto config = Config::load();
    if (!config) return std::shared_ptr<Device>();
    config->reply_timeout = kReplyLimit;
    config->progress = ProgressMode::kAuto;  // the relay's thread does the work itself
    auto made = Device::open(*config);
    return made ? std::move(*made) : std::shared_ptr<Device>();
  }();
  return device;
}

Bridge::Bridge(RelayRequest request, int tcp, int memory, int pair, int epoll, int wake)
    : request_(request), tcp_(tcp), memory_(memory), pair_(pair), epoll_(epoll), wake_(wake) {}

Bridge::~Bridge() {
  // The engine's own thread does the rest of the work for this connection.
  if (rdma_ != nullptr) rdma_->stream().channel().end_sleep();
  rdma_.reset();
  incoming_.reset();
  if (channel_ != nullptr) {
    channel_->leave();
    channel_->release();
  }
  let_go(tcp_);
  let_go(pair_);
  if (memory_ >= 0) close(memory_);
}

// The program has the same socket: closing ours does not end the watch, which points to this
// object.
void Bridge::let_go(int& fd) {
  if (fd < 0) return;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  close(fd);
  fd = -1;
}

void Bridge::watch(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = this;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

bool Bridge::attach() {
  fcntl(pair_, F_SETFL, O_RDWR | O_NONBLOCK);
  channel_ = Channel::attach(memory_, 1, pair_);
  if (channel_ == nullptr) return false;
  channel_->end().nonblocking = 1;
  channel_->mirror();
  watch(pair_, kEdges);
  return true;
}

void Bridge::begin() {
  const auto wake = [fd = wake_] {
    const std::uint64_t one = 1;
    static_cast<void>(!write(fd, &one, sizeof one));
  };
  if (request_.op == RelayOp::kDeposit) {
    state_ = State::kDeposited;
    watch(tcp_, kEdges);
    return;
  }
  const auto device = relay_device();
  if (device == nullptr || !attach()) return;
  const int engines = fcntl(tcp_, F_DUPFD_CLOEXEC, 0);
  if (engines < 0) return;
  if (request_.op == RelayOp::kServe) {
    auto begun = rsockets::RsIncoming::start(device, engines, bridge_options(), wake);
    if (!begun) return;
    incoming_ = std::move(*begun);
    state_ = State::kServing;
    return;
  }
  auto made = rsockets::RsConnection::create(device, bridge_options());
  if (!made) {
    close(engines);
    return;
  }
  rdma_ = std::move(*made);
  rdma_->on_report(wake);
  state_ = State::kConnecting;
  const SocketAddress peer(reinterpret_cast<const sockaddr*>(&request_.peer), request_.peer_length);
  if (!rdma_->connect(engines, peer)) state_ = State::kDone;
}

void Bridge::claimed(int (&fds)[2]) {
  fds[0] = std::exchange(memory_, -1);
  fds[1] = std::exchange(pair_, -1);
  state_ = State::kDone;
}

bool Bridge::needs_tick() const {
  return state_ == State::kServing || state_ == State::kClosing || state_ == State::kConnecting;
}

// A plain connection to the same place. Not an octet of the program's has been sent on the first.
void Bridge::dial() {
  rdma_.reset();
  incoming_.reset();
  let_go(tcp_);
  if (request_.fall_back == 0 || (channel_ == nullptr && !attach())) {
    if (channel_ != nullptr) channel_->reset();
    state_ = State::kDone;
    return;
  }
  tcp_ = socket(request_.peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  state_ = State::kDialing;
  if (tcp_ < 0 || (connect(tcp_, reinterpret_cast<const sockaddr*>(&request_.peer),
                           request_.peer_length) != 0 &&
                   errno != EINPROGRESS)) {
    channel_->reset();
    state_ = State::kDone;
    return;
  }
  watch(tcp_, kEdges);
}

void Bridge::enter_rdma() {
  if (!rdma_->begin()) {
    dial();
    return;
  }
  state_ = State::kRdma;
  channel_->set_path(BridgePath::kRdma);
  watch(rdma_->stream().channel().sleep_fd(), EPOLLIN);
  pump_rdma();
}

void Bridge::advance() {
  switch (state_) {
    case State::kDeposited: {
      // The server ends the connection, or says something of its own: it is not under Weft.
      std::uint8_t octet = 0;
      const ssize_t n = recv(tcp_, &octet, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return;
      dial();
      return;
    }
    case State::kConnecting:
      if (rdma_->phase() == rsockets::RsPhase::kConnecting) return;
      if (rdma_->phase() == rsockets::RsPhase::kFailed) {
        dial();
      } else {
        enter_rdma();
      }
      return;
    case State::kServing:
      switch (incoming_->advance()) {
        case rsockets::RsIncoming::Step::kWaiting: return;
        case rsockets::RsIncoming::Step::kFailed: end_in_error(); return;
        case rsockets::RsIncoming::Step::kReady:
          rdma_ = incoming_->connection();
          enter_rdma();
          return;
      }
      return;
    case State::kRdma: pump_rdma(); return;
    case State::kDialing: finish_dial(); return;
    case State::kPlain: pump_plain(); return;
    case State::kClosing: finish(); return;
    case State::kDone: return;
  }
}

// --- plain ---

void Bridge::end_in_error() {
  channel_->reset();
  state_ = State::kDone;
}

void Bridge::finish_dial() {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(tcp_, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
    return end_in_error();
  }
  sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  if (getpeername(tcp_, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) return;
  state_ = State::kPlain;
  declined_ = request_.op == RelayOp::kConnect;
  channel_->set_path(BridgePath::kTcp);
  pump_plain();
}

// Only what TCP takes leaves the channel.
bool Bridge::program_to_tcp() {
  if (out_ended_) return false;
  std::array<std::uint8_t, kPiece> buffer;
  const iovec part{buffer.data(), buffer.size()};
  const ssize_t n = channel_->receive(&part, 1, MSG_PEEK, false);
  if (n < 0 && errno == EAGAIN) return false;
  if (n <= 0) {
    out_ended_ = true;
    shutdown(tcp_, SHUT_WR);
    return false;
  }
  const ssize_t sent =
      send(tcp_, buffer.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent <= 0) {
    if (errno != EAGAIN) end_in_error();
    return false;
  }
  const iovec taken{buffer.data(), static_cast<std::size_t>(sent)};
  static_cast<void>(!channel_->receive(&taken, 1, MSG_TRUNC, false));
  return true;
}

void Bridge::tcp_to_pending() {
  if (!pending_.empty() || in_ended_) return;
  std::array<std::uint8_t, kPiece> buffer;
  const ssize_t n = recv(tcp_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n > 0) {
    pending_.assign(buffer.begin(), buffer.begin() + n);
  } else if (n == 0) {
    in_ended_ = true;
    channel_->shut(SHUT_WR);
  } else if (errno != EAGAIN) {
    end_in_error();
  }
}

bool Bridge::pending_to_program() {
  if (pending_.empty()) return false;
  const iovec rest{pending_.data(), pending_.size()};
  const ssize_t n = channel_->transmit(&rest, 1, false);
  if (n > 0) {
    pending_.erase(pending_.begin(), pending_.begin() + n);
    return true;
  }
  if (errno != EAGAIN) state_ = State::kDone;
  return false;
}

void Bridge::pump_plain() {
  for (bool moved = true; moved;) {
    moved = program_to_tcp();
    if (state_ == State::kDone) return;
    tcp_to_pending();
    if (state_ == State::kDone) return;
    moved |= pending_to_program();
    if (state_ == State::kDone) return;
  }
  if (out_ended_ && in_ended_ && pending_.empty()) state_ = State::kDone;
}

// --- RDMA ---

void Bridge::rdma_out() {
  rsockets::RsStream& stream = rdma_->stream();
  std::array<std::uint8_t, kPiece> buffer;
  while (!out_ended_ && !stream.down() && stream.can_send()) {
    if (looked_ && channel_->awaits_signal()) break;
    const iovec part{buffer.data(), buffer.size()};
    const ssize_t n = channel_->receive(&part, 1, MSG_PEEK, false);
    if (n > 0) {
      const std::size_t sent = stream.send(std::span(buffer.data(), static_cast<std::size_t>(n)));
      const iovec taken{buffer.data(), sent};
      if (sent > 0) static_cast<void>(!channel_->receive(&taken, 1, MSG_TRUNC, false));
    } else if (n == 0 || errno != EAGAIN) {
      out_ended_ = true;
    } else {
      looked_ = true;
      break;
    }
  }
  if (out_ended_ && !out_told_) {
    out_told_ = in_ended_ ? stream.say_disconnect() : stream.say_shutdown();
  }
}

void Bridge::rdma_in() {
  rsockets::RsStream& stream = rdma_->stream();
  std::array<std::uint8_t, kPiece> buffer;
  while (stream.unread() > 0) {
    const std::size_t room = channel_->room();
    const bool gone = channel_->reader_gone();
    if (room == 0 && !gone) {
      channel_->await_room();
      if (channel_->room() == 0) return;
      continue;
    }
    const std::size_t most = gone ? buffer.size() : std::min(buffer.size(), room);
    const std::size_t n = stream.receive(std::span(buffer.data(), most), false);
    const iovec part{buffer.data(), n};
    if (channel_->transmit(&part, 1, false) < 0) {
      state_ = State::kClosing;  // the program has closed
      return;
    }
  }
  const bool over = stream.down() && rdma_->phase() == rsockets::RsPhase::kDown;
  if (!in_ended_ && (stream.peer_finished() || over)) {
    in_ended_ = true;
    if (!stream.peer_finished() && (stream.violated() || rdma_->error())) {
      channel_->reset();
      state_ = State::kDone;
      return;
    }
    channel_->shut(SHUT_WR);
  }
}

void Bridge::pump_rdma() {
  rsockets::RsStream& stream = rdma_->stream();
  stream.channel().end_sleep();
  busy_ = false;
  looked_ = false;
  for (int turns = 0; state_ == State::kRdma && !busy_; ++turns) {
    stream.process();
    rdma_out();
    rdma_in();
    if (state_ != State::kRdma || stream.rest()) break;
    busy_ = turns == kTurns;
  }
  if (state_ == State::kRdma && ((out_ended_ && in_ended_) || stream.peer_left())) {
    if (stream.unread() == 0) state_ = State::kClosing;
  }
  if (state_ == State::kClosing) {
    busy_ = false;
    limit_ = Clock::now() + kCloseLimit;
    finish();
  }
}

// Says goodbye, waits until TCP has all, then until the peer has closed.
void Bridge::finish() {
  rsockets::RsStream& stream = rdma_->stream();
  stream.channel().end_sleep();
  do {
    stream.process();
    const bool said = stream.say_disconnect();
    if (Clock::now() > limit_ || stream.down() || (said && stream.flushed())) {
      static_cast<void>(rdma_->disconnect());
      if (rdma_->phase() != rsockets::RsPhase::kUp || Clock::now() > limit_) state_ = State::kDone;
    }
  } while (state_ != State::kDone && !stream.rest());
}

}  // namespace weft::sockets
