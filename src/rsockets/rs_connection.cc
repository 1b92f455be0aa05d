#include "rsockets/rs_connection.h"

#include <algorithm>
#include <vector>

#include "os/guarded.h"
#include "os/lock.h"

namespace weft::rsockets {

// Where the engine delivers. It outlives the connection in the engine's hands.
class RsConnection::Reports final : public EventChannel {
 public:
  [[nodiscard]] int fd() const override { return -1; }
  [[nodiscard]] Result<ConnectionEvent> next(
      std::optional<std::chrono::nanoseconds> /*timeout*/) override {
    return fail(Error::kUnsupported);
  }

  void post(ConnectionEvent&& event) override {
    using Type = ConnectionEvent::Type;
    const os::MutexLock lock(mutex_);
    switch (event.type) {
      case Type::kEstablished:
        phase_ = RsPhase::kUp;
        private_data_ = std::move(event.private_data);
        break;
      case Type::kDisconnected:
        phase_ = RsPhase::kDown;
        error_ = event.error;
        break;
      case Type::kConnectRequest:
      case Type::kResponse: return;
      default:
        phase_ = RsPhase::kFailed;
        refused_by_peer_ = event.type == Type::kRejected;
        error_ = refused_by_peer_ ? Error::kRefused : event.error.value_or(Error::kSystem);
    }
    changed_.notify_all();
    if (wake_) wake_();
  }

  mutable os::Mutex mutex_;
  mutable os::Condition changed_;
  std::function<void()> wake_ WEFT_GUARDED_BY(mutex_);
  RsPhase phase_ WEFT_GUARDED_BY(mutex_) = RsPhase::kIdle;
  bool refused_by_peer_ WEFT_GUARDED_BY(mutex_) = false;
  std::optional<Error> error_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::uint8_t> private_data_ WEFT_GUARDED_BY(mutex_);
};

Result<std::shared_ptr<RsConnection>> RsConnection::create(const std::shared_ptr<Device>& device,
                                                           const RsOptions& options) {
  return os::guarded([&]() -> Result<std::shared_ptr<RsConnection>> {
    std::shared_ptr<RsConnection> made(new RsConnection());
    auto stream = RsStream::create(*device, options);
    if (!stream) return fail(stream.error());
    made->device_ = device;
    made->stream_ = std::move(*stream);
    made->reports_ = std::make_shared<Reports>();
    return made;
  });
}

RsConnection::~RsConnection() = default;

ConnectionParams RsConnection::params(std::span<const std::uint8_t> extra) const {
  ConnectionParams params;
  const auto own = stream_->private_data();
  params.private_data.assign(own.begin(), own.end());
  params.private_data.insert(params.private_data.end(), extra.begin(), extra.end());
  return params;
}

Status RsConnection::connect(int fd, const SocketAddress& peer,
                             std::span<const std::uint8_t> extra) {
  os::Fd socket(fd);
  return os::guarded([&] { return begin_connect(socket, peer, extra); });
}

Status RsConnection::begin_connect(os::Fd& socket, const SocketAddress& peer,
                                   std::span<const std::uint8_t> extra) {
  auto connection = device_->create_connection(reports_);
  if (!connection) return fail(connection.error());
  if (auto taken = (*connection)->adopt(socket.get()); !taken) return taken;
  static_cast<void>(socket.release());
  connection_ = std::move(*connection);
  {
    const os::MutexLock lock(reports_->mutex_);
    reports_->phase_ = RsPhase::kConnecting;
  }
  // One Read may be outstanding, and the peer's are refused: an RNIC can send its RTR, as rdma-core
  // allows it.
  ConnectionParams params = this->params(extra);
  params.ord = 1;
  params.ird = 0;
  params.policy.refused_wait = std::chrono::nanoseconds(0);  // a socket program decides that
  return connection_->connect(stream_->qp(), peer, params);
}

Status RsConnection::accept(const ConnectionEvent& request) {
  return os::guarded([&] { return answer(request); });
}

Status RsConnection::answer(const ConnectionEvent& request) {
  if (auto fits = stream_->start(request.private_data); !fits) {
    static_cast<void>(request.connection->reject({}));
    return fits;
  }
  begun_ = true;
  connection_ = request.connection;
  {
    const os::MutexLock lock(reports_->mutex_);
    reports_->phase_ = RsPhase::kConnecting;
  }
  connection_->set_channel(reports_);
  ConnectionParams params = this->params({});
  params.ird = std::min<std::uint16_t>(request.ird, 1);
  params.ord = std::min<std::uint16_t>(request.ord, 1);
  return connection_->accept(stream_->qp(), params);
}

RsPhase RsConnection::phase() const {
  const os::MutexLock lock(reports_->mutex_);
  return reports_->phase_;
}

std::optional<Error> RsConnection::error() const {
  const os::MutexLock lock(reports_->mutex_);
  return reports_->error_;
}

void RsConnection::on_report(std::function<void()> wake) {
  const os::MutexLock lock(reports_->mutex_);
  reports_->wake_ = std::move(wake);
}

bool RsConnection::wait_while(RsPhase from, std::chrono::steady_clock::time_point deadline) const {
  const os::MutexLock lock(reports_->mutex_);
  while (reports_->phase_ == from) {
    if (reports_->changed_.wait_until(reports_->mutex_, deadline) == std::cv_status::timeout) {
      return reports_->phase_ != from;
    }
  }
  return true;
}

bool RsConnection::begin() {
  if (begun_) return true;
  std::vector<std::uint8_t> data;
  {
    const os::MutexLock lock(reports_->mutex_);
    data = reports_->private_data_;
  }
  begun_ = static_cast<bool>(stream_->start(data));
  return begun_;
}

Status RsConnection::disconnect() {
  return connection_ != nullptr ? connection_->disconnect() : Status(fail(Error::kBadState));
}

void RsConnection::abort() {
  if (connection_ != nullptr) connection_->abort();
}

}  // namespace weft::rsockets
