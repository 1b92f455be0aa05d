#include "verbs/connection.h"

#include <cassert>
#include <new>
#include <utility>

#include "io/socket.h"
#include "verbs/event_channel.h"
#include "verbs/qp.h"

namespace weft::verbs {

using Type = ConnectionEvent::Type;

namespace {

// Until the last event, for which there was no memory, is told after all.
constexpr Duration kUnsentPause{1'000'000};

proto::SessionLimits limits_of(const Config& config) {
  return {.request_timeout = config.request_timeout,
          .reply_timeout = config.reply_timeout,
          .rtr_timeout = config.rtr_timeout};
}

// Empty: nothing went wrong.
std::optional<Error> error_of(const proto::SessionFailure& failure) {
  using Fault = proto::SessionFault;
  switch (failure.fault) {
    case Fault::kNone: return std::nullopt;
    case Fault::kTransport: return failure.error;
    case Fault::kClosedByPeer:
    case Fault::kEndedUnused:
    case Fault::kStreamLost: return Error::kConnectionLost;
    case Fault::kProtocol:
    case Fault::kUnusableReply:
    case Fault::kTerminated: return Error::kProtocol;
    case Fault::kRequestTimeout:
    case Fault::kSendTimeout:
    case Fault::kReplyTimeout:
    case Fault::kRtrTimeout: return Error::kTimedOut;
    case Fault::kAborted: return Error::kAborted;
  }
  return Error::kProtocol;
}

// How the application hears of a set-up that failed before the stream ran.
Type failed_as(const proto::SessionFailure& failure, bool initiator) {
  using Fault = proto::SessionFault;
  switch (failure.fault) {
    // Drivers that do not like a Request close without a word.
    case Fault::kClosedByPeer: return Type::kRejected;
    case Fault::kReplyTimeout:
    case Fault::kSendTimeout: return Type::kUnreachable;
    case Fault::kTransport: break;
    default: return Type::kConnectError;
  }
  if (failure.error == Error::kConnectionLost && initiator) return Type::kRejected;
  const bool silent = failure.error == Error::kTimedOut || failure.error == Error::kUnreachable;
  return silent ? Type::kUnreachable : Type::kConnectError;
}

}  // namespace

ConnectionImpl::ConnectionImpl(std::shared_ptr<DeviceImpl> device, ObjectCount counted,
                               std::weak_ptr<EventChannel> channel)
    : device_(std::move(device)),
      object_(std::move(counted)),
      channel_(std::move(channel)),
      session_(limits_of(device_->config())),
      socket_(device_->engine()) {}

Result<std::shared_ptr<Connection>> ConnectionImpl::create(
    std::shared_ptr<DeviceImpl> device, const std::shared_ptr<EventChannel>& channel) {
  auto counted = ObjectCount::take(*device, ObjectKind::kConnection);
  if (!counted) return fail(counted.error());
  device->ensure_page();
  std::shared_ptr<ConnectionImpl> made(
      new ConnectionImpl(std::move(device), std::move(*counted), channel));
  Lock::assume(*made);
  made->socket_.belong_to(made);
  return made->make_handle();
}

ConnectionImpl::~ConnectionImpl() {
  if (!device_->usable()) return;
  // A callback may be waiting for mutex_; it finds nothing to do, but it has to find it.
  device_->engine().wait_for(this);
}

// The handle keeps the object alive, and lets go of it even while weak references to it remain.
std::shared_ptr<Connection> ConnectionImpl::make_handle() {
  assert(!has_handle_);
  std::shared_ptr<Connection> handle(this,
                                     [self = shared_from_this()](Connection* /*same*/) mutable {
                                       // Not if there was no memory for the handle.
                                       if (self->has_handle_) self->retire();
                                       self.reset();
                                     });
  has_handle_ = true;
  handle_ = handle;
  return handle;
}

void ConnectionImpl::retire() {
  if (!device_->usable()) return;
  Lock lock(*this);
  end_now(lock, false);
}

void ConnectionImpl::abort() {
  if (!device_->usable()) return;
  Lock lock(*this);
  end_now(lock, true);
}

// Ends a set-up with a reset. `tell`: the application is still there to be told.
void ConnectionImpl::end_now(Lock& lock, bool tell) {
  switch (phase_) {
    case Phase::kIdle:
      socket_.close(false);
      phase_.on(ConnectionStep::kEnded);
      return;
    case Phase::kAsking:
    case Phase::kConnecting:
    case Phase::kRefused:
    case Phase::kStarting:
      if (tell && is_ours()) {
        set_up_failed(lock, Type::kConnectError, Error::kAborted, "aborted by the application");
        return;
      }
      settle_listener(lock);
      attempts_.wait_no_more(lock);
      port_search_.stop(lock, std::nullopt);
      socket_.stand_down();
      socket_.close(true);
      release_qp(lock);
      phase_.on(ConnectionStep::kEnded);
      return;
    case Phase::kCarrying: carrier_.end(lock, tell); return;
    case Phase::kAttaching: session_.abort(); return;
    case Phase::kUp: {
      if (tell) {
        session_.abort();
        return follow(lock);
      }
      // Octets that have been sent still arrive.
      with_qp(lock, [](QueuePairImpl& qp) { qp.disconnect(); });
      return;
    }
    case Phase::kDown: settle_listener(lock); return;
  }
}

Status ConnectionImpl::disconnect() {
  if (!device_->usable()) return fail(Error::kBadState);
  Lock lock(*this);
  if (phase_ == Phase::kDown && (session_.is_established() || carrier_.is_up())) return {};
  if (phase_ == Phase::kCarrying) {
    step(lock, [&] {
      lock.covers(*this);
      carrier_.disconnect();
    });
    return {};
  }
  if (phase_ != Phase::kUp) return fail(Error::kBadState);
  with_qp(lock, [](QueuePairImpl& qp) { qp.disconnect(); });
  return {};
}

Status ConnectionImpl::bind(const SocketAddress& local, bool reuse_address) {
  if (!device_->usable()) return fail(Error::kBadState);
  Lock lock(*this);
  if (phase_ != Phase::kIdle || socket_) return fail(Error::kBadState);
  if (local.family() != AF_INET && local.family() != AF_INET6) {
    return fail(Error::kInvalidArgument);
  }
  auto socket = io::open_socket(local.family());
  if (!socket) return fail(socket.error());
  if (auto bound = io::bind_socket(socket->get(), local, reuse_address, false); !bound) {
    return bound;
  }
  const SocketAddress known = io::local_address(socket->get());
  if (known.family() == AF_UNSPEC) return fail(Error::kNoMemory);
  socket_ = std::move(*socket);
  local_ = known;
  return {};
}

Status ConnectionImpl::adopt(int fd) {
  if (!device_->usable()) return fail(Error::kBadState);
  Lock lock(*this);
  if (phase_ != Phase::kIdle || socket_) return fail(Error::kBadState);
  if (auto fit = io::prepare_adopted(fd); !fit) return fit;
  socket_ = os::Fd::closed_in_child(fd);
  local_ = io::local_address(fd);
  peer_ = io::peer_address(fd);
  return {};
}

// --- sight ---

SocketAddress ConnectionImpl::local_address() const {
  if (!device_->usable()) return {};
  const Lock lock(*this);
  return local_;
}

SocketAddress ConnectionImpl::peer_address() const {
  if (!device_->usable()) return {};
  const Lock lock(*this);
  return peer_;
}

std::shared_ptr<QueuePair> ConnectionImpl::qp() const {
  if (!device_->usable()) return nullptr;
  const Lock lock(*this);
  return qp_ == nullptr ? nullptr : qp_->handle().lock();
}

ConnectionInfo ConnectionImpl::info() const {
  if (!device_->usable()) return {};
  const Lock lock(*this);
  ConnectionInfo info = info_;
  if (qp_ != nullptr) {
    info.max_ulpdu = std::max(info.max_ulpdu, qp_->max_ulpdu());
    info.path = qp_->path();
  }
  return info;
}

std::unique_ptr<trace::Trace> ConnectionImpl::take_trace() {
  const Lock lock(*this);
  return socket_.take_trace();
}

// --- events ---

void ConnectionImpl::set_channel(std::shared_ptr<EventChannel> channel) {
  if (!device_->usable() || channel == nullptr) return;
  Lock lock(*this);
  const std::shared_ptr<EventChannel> old = channel_.lock();
  EventChannelImpl* const from = EventChannelImpl::of(old);
  EventChannelImpl* const to = EventChannelImpl::of(channel);
  if (from != nullptr && to != nullptr) from->move_events(this, *to);
  channel_ = channel;
  lock.dispose(old);
  lock.dispose(std::move(channel));
}

// Under mutex_, so that events keep their order whatever thread they come from.
void ConnectionImpl::post(Lock& lock, ConnectionEvent event) {
  const std::shared_ptr<EventChannel> channel = channel_.lock();
  event.connection = handle_.lock();
  const std::shared_ptr<Connection> handle = event.connection;
  // Before anything throws: our share may be the last one.
  lock.dispose(channel);
  lock.dispose(handle);
  if (channel != nullptr && handle != nullptr) {
    try {
      channel->post(std::move(event));
    } catch (const std::bad_alloc&) {
      // A step that fails ends the connection, and tells that. Behind the end nothing else does.
      if (phase_ != Phase::kDown) throw;
      event.connection.reset();
      unsent_ = std::move(event);
      socket_.set_timer(os::now() + kUnsentPause);
    }
  }
}

void ConnectionImpl::set_up_failed(Lock& lock, Type type, Error error, std::string_view why,
                                   std::span<const std::uint8_t> private_data) {
  // Nothing may fail behind the end: nobody would tell of it.
  ConnectionEvent event;
  event.type = type;
  event.error = error;
  event.private_data.assign(private_data.begin(), private_data.end());
  attempts_.wait_no_more(lock);
  port_search_.stop(lock, std::nullopt);
  socket_.stand_down();
  socket_.close(error == Error::kAborted || error == Error::kTimedOut);
  release_qp(lock);
  phase_.on(ConnectionStep::kEnded);
  // The application learns it from the event.
  device_->note_refused(LogLevel::kInfo, peer_.shown().view(), why);
  post(lock, std::move(event));
}

void ConnectionImpl::report_established(Lock& lock) {
  device_->note_opened();
  os::log(LogLevel::kInfo, "connection {} - {} established: MPA revision {}, CRC {}, {}, ULPDU {}",
          local_.shown().view(), peer_.shown().view(), info_.mpa_revision, info_.crc ? "on" : "off",
          info_.congestion, info_.max_ulpdu);
  ConnectionEvent event;
  event.type = Type::kEstablished;
  event.ird = info_.ird;
  event.ord = info_.ord;
  if (session_.is_initiator()) {
    const auto data = session_.peer().private_data;
    event.private_data.assign(data.begin(), data.end());
  }
  session_.drop_frames();
  post(lock, std::move(event));
}

void ConnectionImpl::on_first_fpdu() {
  Lock lock(*this);
  step(lock, [&] {
    lock.covers(*this);
    session_.first_fpdu();
    follow(lock);
  });
}

void ConnectionImpl::on_stream_down(proto::StreamEnd how, TerminateCode /*code*/,
                                    bool /*by_peer*/) {
  Lock lock(*this);
  step(lock, [&] {
    lock.covers(*this);
    session_.stream_down(how);
    follow(lock);
  });
}

void ConnectionImpl::on_failed(Lock& lock) {
  const proto::SessionFailure& failure = session_.failure();
  if (phase_ == Phase::kUp) return report_down(lock);
  if (!is_ours()) return request_failed(lock, failure.text());
  set_up_failed(lock, failed_as(failure, session_.is_initiator()),
                error_of(failure).value_or(Error::kConnectionLost), failure.text());
}

// The stream is down.
void ConnectionImpl::report_down(Lock& lock) {
  phase_.on(ConnectionStep::kEnded);
  lock.dispose(std::move(qp_));
  qp_ = nullptr;
  const proto::SessionFailure& failure = session_.failure();
  ConnectionEvent event;
  event.error = error_of(failure);
  if (session_.is_established()) {
    event.type = Type::kDisconnected;
    os::log(LogLevel::kInfo, "connection {} - {} down: {}", local_.shown().view(),
            peer_.shown().view(), failure.text());
  } else {
    event.type = Type::kConnectError;
    device_->note_refused(LogLevel::kInfo, peer_.shown().view(), failure.text());
  }
  post(lock, std::move(event));
}

}  // namespace weft::verbs
