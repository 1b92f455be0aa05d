// The side that is connected to: MPA Request, the application's answer, Reply.
#include <sys/socket.h>

#include <array>
#include <cassert>
#include <cerrno>

#include "io/socket.h"
#include "verbs/connection.h"
#include "verbs/event_channel.h"
#include "verbs/qp.h"

namespace weft::verbs {

Result<std::shared_ptr<ConnectionImpl>> ConnectionImpl::create_accepted(
    std::shared_ptr<DeviceImpl> device, const std::shared_ptr<EventChannel>& channel,
    const std::shared_ptr<ListenerHost>& listener, os::Fd socket, const SocketAddress& peer,
    const SocketAddress& local) {
  assert(listener != nullptr && socket);
  auto counted = ObjectCount::take(*device, ObjectKind::kConnection);
  if (!counted) return fail(counted.error());
  std::shared_ptr<ConnectionImpl> made(
      new ConnectionImpl(std::move(device), std::move(*counted), channel));
  Lock::assume(*made);
  made->listener_ = listener;
  made->request_.counted = AtListener::kHalfOpen;
  made->socket_.belong_to(made);
  made->socket_ = std::move(socket);
  made->peer_ = peer;
  made->local_ = local;
  made->phase_.on(ConnectionStep::kAccepted);
  return made;
}

void ConnectionImpl::start_request(bool at_once, bool inherited) {
  Lock lock(*this);
  if (phase_ != Phase::kStarting) return;
  step(lock, [&] {
    lock.covers(*this);
    if (local_.family() == AF_UNSPEC) local_ = io::local_address(socket_.get());
    const auto tune = inherited ? io::tune_accepted : io::tune_connected;
    info_.congestion = tune(socket_.get(), device_->config(), io::is_loopback_path(local_, peer_));
    socket_.start_trace(device_->tracer(), local_, peer_, session_.is_initiator());
    session_.begin(os::now());
    if (at_once) return pump(lock);
    socket_.watch(EPOLLIN);
    follow(lock);
  });
}

// The Request is whole.
void ConnectionImpl::on_request(Lock& lock) {
  const std::shared_ptr<ListenerHost> listener = listener_.lock();
  const std::shared_ptr<EventChannel> channel = listener == nullptr ? nullptr : listener->channel();
  lock.dispose(listener);
  lock.dispose(channel);
  if (channel == nullptr) {
    request_failed(lock, "nobody waits for it any more");
    return;
  }
  if (!carrier_.speaks_as(listener->carries())) {
    request_failed(lock, listener->carries() ? "it is no RoCE-like device, and this one is"
                                             : "it is a RoCE-like device, and this one is not");
    return;
  }
  if (listener->request_ready(*this)) tell_request(lock, listener);
}

// The listener counts it as undelivered already; one that has failed meanwhile gives that back.
void ConnectionImpl::report_request() {
  Lock lock(*this);
  const std::shared_ptr<ListenerHost> listener = listener_.lock();
  lock.dispose(listener);
  if (listener == nullptr) return;
  if (awaits_answer() && request_.counted == AtListener::kHalfOpen) {
    return step(lock, [&] {
      lock.covers(*this);
      tell_request(lock, listener);
    });
  }
  listener->request_settled();
}

void ConnectionImpl::tell_request(Lock& lock, const std::shared_ptr<ListenerHost>& listener) {
  assert(phase_ == Phase::kStarting && !request_.told);
  request_.counted = AtListener::kUndelivered;  // whatever comes of it
  const proto::StartupPeer asked = session_.peer();
  const Config& config = device_->config();
  const auto known = [&](std::uint16_t words, std::uint16_t otherwise) {
    return asked.enhanced && words != kIrdOrdNotNegotiated ? words : otherwise;
  };
  ConnectionEvent event;
  event.type = ConnectionEvent::Type::kConnectRequest;
  event.listener = listener;
  event.ird = known(asked.ord, config.ird);
  event.ord = known(asked.ird, config.ord);
  const auto own = carrier_.take(event);
  event.private_data.assign(own.begin(), own.end());
  const std::shared_ptr<Connection> handle = make_handle();
  lock.dispose(handle);
  // It came with that which the listener had when it was accepted.
  const std::shared_ptr<EventChannel> channel = listener->channel();
  lock.dispose(channel);
  channel_ = channel;
  post(lock, std::move(event));
  request_.told = true;  // whoever has taken it waits for mutex_
  // A thread that closed it, or set another channel, may have emptied this one before that came.
  EventChannelImpl* queue = EventChannelImpl::of(channel);
  while (queue != nullptr) {
    const std::shared_ptr<EventChannel> now = listener->channel();
    lock.dispose(now);
    EventChannelImpl* const next = EventChannelImpl::of(now);
    if (next == nullptr || next == queue || !queue->move_events(this, *next)) break;
    channel_ = now;
    queue = next;
  }
  if (listener->is_closed() && queue != nullptr) queue->drop_request(this);
}

// Without an event: the application does not know of it yet, or learns it when it answers. A
// request that waits in the application's channel counts until it is taken: else a peer could fill
// that channel without end. `with_reset` would lose an answer to revision 0 that is under way.
void ConnectionImpl::request_failed(Lock& lock, std::string_view why, bool with_reset) {
  request_.lost = request_.told;
  // One that no event tells of counts no more.
  if (request_.counted == AtListener::kHalfOpen || !request_.told) settle_listener(lock);
  socket_.stand_down();
  socket_.close(with_reset);
  phase_.on(ConnectionStep::kEnded);
  device_->note_refused(LogLevel::kWarning, peer_.shown().view(), why);
}

void ConnectionImpl::settle_listener(Lock& lock) {
  if (request_.counted == AtListener::kNot) return;
  const bool half_open = request_.counted == AtListener::kHalfOpen;
  request_.counted = AtListener::kNot;
  const std::shared_ptr<ListenerHost> listener = listener_.lock();
  if (listener == nullptr) return;
  lock.dispose(half_open ? listener->forget_half_open(*this) : nullptr);
  if (!half_open) listener->request_settled();
  lock.dispose(listener);
}

void ConnectionImpl::request_taken() {
  if (!device_->usable()) return;
  Lock lock(*this);
  if (request_.counted == AtListener::kUndelivered) settle_listener(lock);
}

void ConnectionImpl::drop(std::string_view why) {
  Lock lock(*this);
  // A step: the log may need memory, and the listener may be in its destructor.
  if (phase_ == Phase::kStarting && !request_.told) {
    step(lock, [&] {
      lock.covers(*this);
      request_failed(lock, why);
    });
  }
}

void ConnectionImpl::give_way() {
  const auto self = shared_from_this();
  Lock lock(*this);
  if (phase_ != Phase::kStarting || request_.told) return;
  const bool had_asked = awaits_answer();
  step(lock, [&] {
    lock.covers(*this);
    pump(lock);
  });
  if (phase_ != Phase::kStarting || request_.told) return;
  // It had asked already, and nobody had looked yet.
  if (!had_asked && awaits_answer()) return;
  request_failed(lock,
                 awaits_answer() ? "the backlog is full, and others wait for its place"
                                 : "it sent no MPA Request, and others wait for its place",
                 true);
}

bool ConnectionImpl::awaits_answer() const {
  return phase_ == Phase::kStarting && session_.state() == proto::SessionState::kRequested;
}

Status ConnectionImpl::accept(std::shared_ptr<QueuePair> qp, const ConnectionParams& params) {
  if (!device_->usable()) return fail(Error::kBadState);
  if ((qp == nullptr) != params.carried.has_value()) return fail(Error::kInvalidArgument);
  Lock lock(*this);
  if (request_.lost) {
    settle_listener(lock);
    return fail(Error::kConnectionLost);
  }
  if (!awaits_answer() || !carrier_.speaks_as(params.carried.has_value()))
    return fail(Error::kBadState);
  const Status begun = os::guarded([&] {
    lock.covers(*this);
    return answer(qp, params);
  });
  if (!begun) return begun;
  step(lock, [&] {
    lock.covers(*this);
    settle_listener(lock);
    // On this thread: the Reply fits into an empty socket buffer, and the QP is ready on return.
    pump(lock);
  });
  return {};
}

// Nothing has changed if it fails.
Status ConnectionImpl::answer(const std::shared_ptr<QueuePair>& qp,
                              const ConnectionParams& params) {
  assert(phase_ == Phase::kStarting && qp_ == nullptr);
  const auto offer = make_offer(params);
  if (!offer) return fail(offer.error());
  auto reserved = params.carried ? Reservation() : Reservation::of(qp, *this);
  if (!reserved && !params.carried) return fail(Error::kBadState);
  if (!session_.accept(*offer, os::now())) return fail(Error::kInvalidArgument);
  qp_ = reserved.keep();
  carrier_.choose(params.carried.has_value());
  fpdu_ = params.policy.fpdu.value_or(device_->config().fpdu);
  path_ = params.policy.path.value_or(device_->config().path);
  if (params.traffic_class) io::set_traffic_class(socket_.get(), *params.traffic_class);
  return {};
}

Status ConnectionImpl::reject(std::span<const std::uint8_t> private_data) {
  if (!device_->usable()) return fail(Error::kBadState);
  Lock lock(*this);
  if (request_.lost) {
    settle_listener(lock);
    return fail(Error::kConnectionLost);
  }
  if (!awaits_answer()) return fail(Error::kBadState);
  if (auto replied = session_.reject(private_data, os::now()); !replied) {
    return fail(Error::kInvalidArgument);
  }
  settle_listener(lock);
  // One write: a Reply and FIN into an empty socket buffer. The peer has nothing under way, so
  // close does not turn into a reset.
  pump(lock);
  socket_.stand_down();
  socket_.close(false);
  phase_.on(ConnectionStep::kEnded);
  device_->note_refused(LogLevel::kInfo, peer_.shown().view(), "rejected by our application");
  return {};
}

}  // namespace weft::verbs
