#include "rsockets/rs_incoming.h"

#include <unistd.h>
#include <weft/system_error.h>

#include <cerrno>

#include "os/clock.h"
#include "os/fd.h"
#include "os/lock.h"

namespace weft::rsockets {

class RsIncoming::Requests final : public EventChannel {
 public:
  explicit Requests(std::function<void()> wake) : wake_(std::move(wake)) {}
  [[nodiscard]] int fd() const override { return -1; }
  [[nodiscard]] Result<ConnectionEvent> next(
      std::optional<std::chrono::nanoseconds> /*timeout*/) override {
    return fail(Error::kUnsupported);
  }
  void post(ConnectionEvent&& event) override {
    const os::MutexLock lock(mutex_);
    if (event.type != ConnectionEvent::Type::kConnectRequest) return;
    request_ = std::move(event);
    if (wake_) wake_();
  }
  [[nodiscard]] bool has_one() const {
    const os::MutexLock lock(mutex_);
    return request_.has_value();
  }
  [[nodiscard]] std::optional<ConnectionEvent> take() {
    const os::MutexLock lock(mutex_);
    auto out = std::move(request_);
    request_.reset();
    return out;
  }

 private:
  mutable os::Mutex mutex_;
  std::function<void()> wake_;
  std::optional<ConnectionEvent> request_ WEFT_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<RsIncoming>> RsIncoming::start(std::shared_ptr<Device> device, int fd,
                                                      const RsOptions& options,
                                                      std::function<void()> wake) {
  os::Fd socket(fd);
  std::unique_ptr<RsIncoming> made(new RsIncoming(std::move(device), options));
  made->wake_ = wake;
  made->requests_ = std::make_shared<Requests>(std::move(wake));
  auto listener = made->device_->create_listener(made->requests_);
  if (!listener) return fail(listener.error());
  made->listener_ = std::move(*listener);
  // A little longer than the engine's own limit, which closes the socket.
  made->deadline_ = os::now() + made->device_->config().request_timeout + std::chrono::seconds(1);
  const auto taken = made->listener_->hand_in(fd);
  if (taken || taken.error() != Error::kInvalidArgument) static_cast<void>(socket.release());
  if (!taken) return fail(taken.error());
  return made;
}

RsIncoming::~RsIncoming() = default;

bool RsIncoming::asked() const { return answered() || requests_->has_one(); }

RsIncoming::Step RsIncoming::advance(bool may_answer) {
  if (!answered()) {
    if (!asked()) return os::now() < deadline_ ? Step::kWaiting : Step::kFailed;
    if (!may_answer) return Step::kWaiting;
    auto made = RsConnection::create(device_, options_);
    const int lacks = made ? 0 : system_errno(made.error());
    if (lacks == EMFILE || lacks == ENFILE) return Step::kLacking;
    auto request = requests_->take();
    if (!made) {
      static_cast<void>(request->connection->reject({}));
      return Step::kFailed;
    }
    connection_ = std::move(*made);
    connection_->on_report(wake_);
    if (!connection_->accept(*request)) return Step::kFailed;
  }
  switch (connection_->phase()) {
    case RsPhase::kIdle:
    case RsPhase::kConnecting: return Step::kWaiting;
    case RsPhase::kFailed: return Step::kFailed;
    case RsPhase::kUp:
    case RsPhase::kDown: return Step::kReady;  // what came before the end can be read
  }
  return Step::kFailed;
}

}  // namespace weft::rsockets
