// Set-up as both sides do it: start-up frames, time limits, and the hand-over to the QP.
#include <sys/socket.h>
#include <weft/limits.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

#include "io/path_transport.h"
#include "io/socket.h"
#include "io/tcp_transport.h"
#include "verbs/connection.h"
#include "verbs/qp.h"
#include "verbs/ulpdu_size.h"
#include "wire/fpdu.h"

namespace weft::verbs {

namespace {

constexpr std::uint16_t kDeviceMaximum = 0xffff;

// `inside`: the peer is on this machine. `one_segment` asks what one TCP segment takes.
template <class Ask>
std::uint32_t choose_max_ulpdu(FpduPolicy policy, bool inside, bool crc, Ask one_segment) {
  switch (policy) {
    case FpduPolicy::kMss: return one_segment();
    case FpduPolicy::kCapped: return kCappedUlpdu;
    case FpduPolicy::kLarge: return kMaxUlpdu;
    case FpduPolicy::kAuto: break;
  }
  return inside ? large_ulpdu(crc) : one_segment();
}

std::uint16_t or_maximum(std::uint16_t asked, std::uint16_t maximum) {
  return asked == kDeviceMaximum ? maximum : asked;
}

}  // namespace

//   kInvalidArgument   see Connection::connect()
Result<proto::StartupOffer> ConnectionImpl::make_offer(const ConnectionParams& params) {
  const Config& config = device_->config();
  const ConnectionPolicy& policy = params.policy;
  proto::StartupOffer offer;
  offer.crc = policy.crc.value_or(config.crc);
  offer.markers = policy.markers.value_or(config.markers);
  offer.revision = policy.mpa_revision.value_or(config.mpa_revision);
  offer.peer_to_peer = offer.revision >= 2 && policy.peer_to_peer.value_or(config.peer_to_peer);
  const RtrKind rtr = policy.rtr.value_or(config.rtr);
  offer.rtr_read = rtr != RtrKind::kWrite;
  offer.rtr_write = rtr != RtrKind::kRead;
  offer.ird = or_maximum(params.ird, config.ird);
  offer.ord = or_maximum(params.ord, config.ord);
  offer.private_data = params.private_data;
  if (offer.revision != 1 && offer.revision != 2) return fail(Error::kInvalidArgument);
  if (offer.ird > limits::kIrd || offer.ord > limits::kOrd) return fail(Error::kInvalidArgument);
  if (params.private_data.size() > limits::kPrivateDataBytes) {
    return fail(Error::kInvalidArgument);
  }
  if (params.carried) {
    if (const Status filled = carrier_.fill(params, offer); !filled) return fail(filled.error());
  }
  return offer;
}

ConnectionImpl::Reservation::~Reservation() {
  if (qp_ != nullptr) qp_->unreserve();
}

ConnectionImpl::Reservation ConnectionImpl::Reservation::of(const std::shared_ptr<QueuePair>& qp,
                                                            ConnectionImpl& by) {
  if (qp == nullptr || qp->type() == QpType::kUd) return {};  // no connection for datagrams
  QueuePairImpl& impl = QueuePairImpl::of(*qp);
  if (!impl.reserve_for(by.weak_from_this())) return {};
  return Reservation(impl.shared_from_this());
}

// Whoever waits for this connection is told, if there is memory for that; the peer is in any case.
void ConnectionImpl::end_for_want(Lock& lock, Error of_what) {
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kAttaching:
    case Phase::kDown: return;
    case Phase::kCarrying: return carrier_.ended(lock, of_what);
    case Phase::kUp: return end_now(lock, true);
    case Phase::kAsking:
    case Phase::kConnecting:
    case Phase::kRefused:
    case Phase::kStarting: break;
  }
  if (!is_ours()) return request_failed(lock, describe(of_what), true);
  set_up_failed(lock, ConnectionEvent::Type::kConnectError, of_what, describe(of_what));
}

void ConnectionImpl::release_qp(Lock& lock) {
  if (qp_ == nullptr) return;
  qp_->unreserve();
  lock.dispose(std::move(qp_));
  qp_ = nullptr;
}

// --- descriptor and time ---

void ConnectionImpl::on_io(std::uint32_t /*events*/) {
  const auto self = weak_from_this().lock();
  if (self == nullptr) return;
  Lock lock(*this);
  step(lock, [&] {
    lock.covers(*this);
    switch (phase_) {
      case Phase::kConnecting: {
        // None: a late event, of a question that was asked, or of an earlier attempt.
        if (const auto reached = io::reached_peer(socket_.get())) on_connected(lock, *reached);
        return;
      }
      case Phase::kStarting: pump(lock); return;
      case Phase::kAsking: port_search_.read(lock); return;
      case Phase::kCarrying: carrier_.read(lock); return;
      default: return;  // late
    }
  });
}

void ConnectionImpl::on_timer(io::TimerId id) {
  const auto self = weak_from_this().lock();
  if (self == nullptr) return;
  Lock lock(*this);
  if (!socket_.is_time(id)) return;  // late
  step(lock, [&] {
    lock.covers(*this);
    switch (phase_) {
      case Phase::kConnecting: tcp_failed(lock, Error::kTimedOut); return;
      case Phase::kRefused: start_handshake(lock); return;
      case Phase::kAsking: port_search_.ask_again(lock); return;
      case Phase::kCarrying: carrier_.ended(lock, Error::kTimedOut); return;
      case Phase::kStarting:
      case Phase::kUp:
        session_.expired(os::now());
        follow(lock);
        return;
      case Phase::kDown:
        if (unsent_) post(lock, *std::exchange(unsent_, std::nullopt));
        return;
      default: return;
    }
  });
}

// --- the session ---

void ConnectionImpl::pump(Lock& lock) {
  bool moves = true;
  bool dry = false;  // nothing is there to read: the answer is not, or all has been read
  while (phase_ == Phase::kStarting && moves) {
    if (!session_.to_send().empty()) {
      moves = dry = send_frame();
    } else if (dry && session_.wanted() != 0) {
      socket_.watch(EPOLLIN);
      moves = false;
    } else {
      moves = session_.wanted() != 0 && receive_frame(dry);
    }
    follow(lock);
  }
}

void ConnectionImpl::follow(Lock& lock) {
  using Notice = proto::SessionNotice;
  for (Notice n = session_.take_notice(); n != Notice::kNone; n = session_.take_notice()) {
    switch (n) {
      case Notice::kNone: break;
      case Notice::kRequest: on_request(lock); break;
      case Notice::kAgreed: carrier_.carries() ? carrier_.begin(lock) : hand_over(lock); break;
      case Notice::kEstablished: report_established(lock); break;
      case Notice::kAbortStream: with_qp(lock, [](QueuePairImpl& qp) { qp.abort(); }); break;
      case Notice::kRejected: on_rejected(lock); break;
      case Notice::kFailed: on_failed(lock); break;
      case Notice::kEnded: report_down(lock); break;
    }
  }
  if (phase_ == Phase::kStarting || phase_ == Phase::kUp) {
    socket_.set_timer(session_.deadline());
  } else if (phase_ != Phase::kCarrying && !unsent_) {
    socket_.clear_timer();
  }
}

// True: go on. False: no room in TCP, or the connection is gone.
bool ConnectionImpl::send_frame() {
  const ssize_t n = socket_.send(session_.to_send());
  if (n > 0) {
    session_.sent(static_cast<std::size_t>(n));
    return true;
  }
  if (n < 0 && errno == EINTR) return true;
  if (n == 0 || errno == EAGAIN) {
    socket_.watch(EPOLLOUT);
  } else {
    session_.transport_lost(io::error_from_errno(errno));
  }
  return false;
}

// True: go on. False: nothing there yet, or the connection is gone. `dry`: all has been read.
bool ConnectionImpl::receive_frame(bool& dry) {
  std::array<std::uint8_t, kMpaFrameSize + kMaxPrivateData + 1> buffer;
  const std::size_t want = std::min(session_.wanted(), buffer.size());
  const ssize_t n = socket_.receive(std::span(buffer).first(want));
  if (n > 0) {
    session_.arrived({buffer.data(), static_cast<std::size_t>(n)});
    dry = static_cast<std::size_t>(n) < want;
    return true;
  }
  if (n == 0) {
    session_.peer_closed();
    return true;
  }
  if (errno == EINTR) return true;
  if (errno == EAGAIN) {
    socket_.watch(EPOLLIN);
  } else {
    session_.transport_lost(io::error_from_errno(errno));
  }
  return false;
}

// --- hand-over ---

proto::StreamParams ConnectionImpl::stream_params() {
  assert(qp_ != nullptr);
  const proto::Negotiated& agreed = session_.agreed();
  const Config& config = device_->config();
  proto::StreamParams params =
      proto::stream_params(agreed, config.nudge_wait, config.first_fpdu_wait);
  params.id = qp_->stream_id();
  params.hold_completions = config.completions == CompletionMode::kAcked;
  const bool inside = io::is_loopback_path(local_, peer_);
  const int socket = socket_.get();
  params.max_ulpdu = choose_max_ulpdu(fpdu_, inside, agreed.crc, [&] {
    return mulpdu(io::effective_mss(socket), agreed.tx_markers);
  });
  if (fpdu_ == FpduPolicy::kAuto && params.max_ulpdu < large_ulpdu(agreed.crc)) {
    params.max_ulpdu_known = large_ulpdu(agreed.crc);
  }
  params.recv_wait = config.recv_wait;
  params.close_timeout = config.close_timeout;
  if (inside) params.path = path_;

  info_.initiator = agreed.initiator;
  info_.mpa_revision = agreed.revision;
  info_.crc = agreed.crc;
  info_.markers_sent = agreed.tx_markers;
  info_.markers_received = agreed.rx_markers;
  info_.peer_to_peer = agreed.peer_to_peer;
  info_.rtr = agreed.rtr;
  info_.ird = agreed.ird;
  info_.ord = agreed.ord;
  info_.max_ulpdu = params.max_ulpdu;
  if (info_.congestion.empty()) info_.congestion = io::congestion_control(socket);
  return params;
}

void ConnectionImpl::hand_over(Lock& lock) {
  assert(phase_ == Phase::kStarting && qp_ != nullptr && socket_);
  const proto::StreamParams params = stream_params();
  if (!params.path && path_ == PathMode::kRing) {
    set_up_failed(lock, ConnectionEvent::Type::kConnectError, Error::kUnsupported,
                  "path=ring, and the peer is not on this machine");
    return;
  }
  std::unique_ptr<io::Transport> transport;
  if (params.path) {
    transport = std::make_unique<io::PathTransport>(socket_.hand_over());
  } else {
    transport = std::make_unique<io::TcpTransport>(socket_.hand_over());
  }
  phase_.on(ConnectionStep::kAgreed);
  const std::shared_ptr<QueuePairImpl> qp = qp_;
  lock.unlock();
  const Status taken = qp->attach(std::move(transport), params, shared_from_this());
  lock.relock();
  lock.dispose(qp);
  if (!taken && !session_.is_stream_down()) {
    set_up_failed(lock, ConnectionEvent::Type::kConnectError, Error::kAborted,
                  "the queue pair was taken away");
    return;
  }
  phase_.on(ConnectionStep::kAttached);
  // The QP may have called back already: what it said comes after what is said now.
  session_.stream_running(os::now());
}

}  // namespace weft::verbs
