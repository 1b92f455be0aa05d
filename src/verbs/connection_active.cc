// The side that connects: TCP handshake, MPA Request, Reply.
#include <algorithm>
#include <cassert>

#include "io/socket.h"
#include "verbs/connection.h"
#include "verbs/qp.h"

namespace weft::verbs {

using Type = ConnectionEvent::Type;

namespace {

// Between two attempts to connect where nobody listens: doubled each time.
constexpr Duration kFirstPause{5'000'000};
constexpr Duration kLongestPause{100'000'000};

}  // namespace

Status ConnectionImpl::connect(std::shared_ptr<QueuePair> qp, const SocketAddress& peer,
                               const ConnectionParams& params) {
  if (!device_->usable()) return fail(Error::kBadState);
  const bool known_family = peer.family() == AF_INET || peer.family() == AF_INET6;
  if (!known_family || (qp == nullptr) != params.carried.has_value()) {
    return fail(Error::kInvalidArgument);
  }
  Lock lock(*this);
  if (phase_ != Phase::kIdle) return fail(Error::kBadState);
  const SocketAddress reached = peer_;
  const Status begun = os::guarded([&] {
    lock.covers(*this);
    return begin(qp, peer, params);
  });
  if (!begun) return begun;
  step(lock, [&] {
    lock.covers(*this);
    start(lock, params, reached);
  });
  return {};
}

// Nothing has changed if it fails.
Status ConnectionImpl::begin(const std::shared_ptr<QueuePair>& qp, const SocketAddress& peer,
                             const ConnectionParams& params) {
  assert(phase_ == Phase::kIdle && qp_ == nullptr);
  const auto offer = make_offer(params);
  if (!offer) return fail(offer.error());
  os::Fd fresh;
  if (!socket_) {
    auto socket = io::open_socket(peer.family());
    if (!socket) return fail(socket.error());
    fresh = std::move(*socket);
  }
  auto reserved = params.carried ? Reservation() : Reservation::of(qp, *this);
  if (!reserved && !params.carried) return fail(Error::kBadState);
  if (!session_.request(*offer)) return fail(Error::kInvalidArgument);
  qp_ = reserved.keep();
  carrier_.choose(params.carried.has_value());
  port_search_.choose(params.by_service && device_->config().port_map);
  if (fresh) socket_ = std::move(fresh);
  fpdu_ = params.policy.fpdu.value_or(device_->config().fpdu);
  path_ = params.policy.path.value_or(device_->config().path);
  peer_ = peer;
  phase_.on(ConnectionStep::kConnect);
  return {};
}

// `reached`: the socket was adopted, and its former owner had connected it.
void ConnectionImpl::start(Lock& lock, const ConnectionParams& params,
                           const SocketAddress& reached) {
  if (reached.family() != AF_UNSPEC) {
    io::tune_listening(socket_.get(), device_->config());
    return on_connected(lock, reached);
  }
  io::tune_before_connect(socket_.get(), device_->config());
  if (params.traffic_class) io::set_traffic_class(socket_.get(), *params.traffic_class);
  attempts_.begin(device_->config().connect_timeout,
                  params.policy.refused_wait.value_or(device_->config().refused_wait));
  if (!attempts_.queue_up()) start_handshake(lock);
}

void ConnectionImpl::Attempts::begin(Duration connect_timeout, Duration refused_wait) noexcept {
  Lock::assume(c_);
  until_ = os::now() + connect_timeout;
  refused_until_ = os::now() + refused_wait;
  pause_ = kFirstPause;
}

bool ConnectionImpl::Attempts::queue_up() {
  Lock::assume(c_);
  if (!c_.device_->refused_peers().join(c_.peer_, c_.weak_from_this())) return false;
  refused_ = true;
  c_.phase_.on(ConnectionStep::kRefused);
  c_.socket_.set_timer(std::min(refused_until_, until_));
  return true;
}

void ConnectionImpl::start_handshake(Lock& lock) {
  if (port_search_.is_needed()) return port_search_.begin(lock);
  phase_.on(ConnectionStep::kHandshake);
  SocketAddress target = peer_;
  if (port_search_.port() != 0) target.set_port(port_search_.port());
  if (auto begun = io::begin_connect(socket_.get(), target); !begun) {
    tcp_failed(lock, begun.error());
    return;
  }
  // Inside a machine it is over by now. Then the Request leaves at once, and a refusal is known
  // before the next connect begins.
  if (const auto reached = io::reached_peer(socket_.get())) {
    on_connected(lock, *reached);
  } else {
    socket_.set_timer(attempts_.until());
    socket_.watch(EPOLLOUT);
  }
}

// After a refusal. False: that was the last one. Who is not the first that waits tries by itself
// only when its time is over.
bool ConnectionImpl::Attempts::try_again_later() {
  Lock::assume(c_);
  const Instant now = os::now();
  if (now >= refused_until_ || now >= until_) return false;
  if (!io::undo_connect(c_.socket_.get(), c_.local_)) return false;
  c_.socket_.unwatch();      // a socket without a handshake is always ready
  c_.port_search_.forget();  // the service may be served by another by then
  c_.phase_.on(ConnectionStep::kRefused);
  refused_ = true;
  const bool first = c_.device_->refused_peers().enter(c_.peer_, c_.weak_from_this());
  const Instant next = first ? now + pause_ : Instant::never();
  c_.socket_.set_timer(std::min({next, refused_until_, until_}));
  pause_ = std::min(2 * pause_, kLongestPause);
  return true;
}

void ConnectionImpl::Attempts::wait_no_more(Lock& lock) {
  lock.covers(c_);
  if (!std::exchange(refused_, false)) return;
  std::shared_ptr<ConnectionImpl> next = c_.device_->refused_peers().leave(c_.peer_, c_);
  if (next == nullptr) return;
  (void)c_.device_->engine().post([weak = std::weak_ptr(next)] {
    if (const auto first = weak.lock()) first->your_turn();
  });
  lock.dispose(std::move(next));
}

void ConnectionImpl::your_turn() {
  if (!device_->usable()) return;
  Lock lock(*this);
  if (phase_ == Phase::kRefused) {
    step(lock, [&] {
      lock.covers(*this);
      start_handshake(lock);
    });
  }
}

// `reached`: the peer, as the socket says. None: the handshake has failed, or the kernel had no
// memory to say so.
void ConnectionImpl::on_connected(Lock& lock, SocketAddress reached) {
  assert(socket_);
  if (reached.family() == AF_UNSPEC) {
    if (auto connected = io::take_error(socket_.get()); !connected) {
      return tcp_failed(lock, connected.error());
    }
    reached = io::peer_address(socket_.get());
    if (reached.family() == AF_UNSPEC) return tcp_failed(lock, Error::kConnectionLost);
  }
  // One that was bound to an address and a port keeps them.
  const bool bound = local_.family() != AF_UNSPEC && !local_.is_any() && local_.port() != 0;
  const SocketAddress local = bound ? local_ : io::local_address(socket_.get());
  if (local.shown() == reached.shown()) {
    // Two SYNs of one socket have met: nobody listens at a port that the kernel then chose for us.
    tcp_failed(lock, Error::kRefused);
    return;
  }
  local_ = local;
  // Its lane sets keepalive probes, if it lasts. Nothing else ends a wait for a Reply without
  // limit.
  if (device_->config().reply_timeout.count() == 0) {
    io::keep_alive(socket_.get(), device_->config().keepalive);
  }
  info_.congestion =
      io::tune_accepted(socket_.get(), device_->config(), io::is_loopback_path(local_, peer_));
  socket_.start_trace(device_->tracer(), local_, peer_, session_.is_initiator());
  phase_.on(ConnectionStep::kConnected);
  session_.begin(os::now());
  pump(lock);
  attempts_.wait_no_more(lock);
}

void ConnectionImpl::tcp_failed(Lock& lock, Error error) {
  switch (error) {
    case Error::kRefused:
      if (attempts_.try_again_later()) return;
      set_up_failed(lock, Type::kRejected, Error::kConnectionLost,
                    "nobody listens there (refused_wait)");
      return;
    case Error::kConnectionLost:
      set_up_failed(lock, Type::kRejected, error, "reset during the TCP handshake");
      return;
    case Error::kTimedOut:
      set_up_failed(lock, Type::kUnreachable, error, "no answer to the TCP handshake in time");
      return;
    case Error::kUnreachable: set_up_failed(lock, Type::kUnreachable, error, "no route"); return;
    default: set_up_failed(lock, Type::kConnectError, error, describe(error)); return;
  }
}

// R = 1 in the Reply: the peer's application said no.
void ConnectionImpl::on_rejected(Lock& lock) {
  const auto data = session_.peer().private_data;
  ConnectionEvent peer;
  const auto own = carrier_.carries() ? carrier_.take(peer) : data;
  set_up_failed(lock, Type::kRejected, Error::kRefused, "rejected by the peer's application", own);
}

}  // namespace weft::verbs
