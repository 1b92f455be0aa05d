// Life of a queue pair: creation, hand-over of a connection, states, retirement.
#include "verbs/qp.h"

#include <weft/limits.h>

#include <cassert>
#include <tuple>
#include <utility>

#include "os/guarded.h"
#include "os/log.h"
#include "verbs/cq.h"
#include "verbs/pd.h"
#include "verbs/posting.h"
#include "verbs/qp_connection.h"
#include "verbs/qp_moves.h"
#include "verbs/srq.h"

namespace weft::verbs {

Result<std::shared_ptr<QueuePair>> QueuePairImpl::create(std::shared_ptr<ProtectionDomainImpl> pd,
                                                         const QpOptions& options) {
  if (options.send_cq == nullptr || options.recv_cq == nullptr) {
    return fail(Error::kInvalidArgument);
  }
  if (!caps_legal(options)) return fail(Error::kLimitExceeded);
  DeviceImpl& device = *pd->device_impl();
  if (options.type != QpType::kRc && device.peer_directory() == nullptr) {
    return fail(Error::kUnsupported);
  }
  auto counted = ObjectCount::take(device, ObjectKind::kQp);
  if (!counted) return fail(counted.error());
  auto number = Number::take_for_qp(device);
  if (!number) return fail(number.error());
  std::shared_ptr<QueuePairImpl> qp(
      new QueuePairImpl(std::move(pd), options, std::move(*counted), std::move(*number)));
  if (auto done = qp->queues_.allocate(options); !done) return fail(done.error());
  auto shard = device.shard_for(*qp->queues_.recv_cq(), *qp->queues_.send_cq());
  if (!shard) return fail(shard.error());
  qp->lane_.belong_to(std::move(*shard));
  // From here on what fails retires it.
  std::shared_ptr<QueuePair> handle(qp.get(), [qp](QueuePair*) mutable {
    qp->retire();
    qp.reset();
  });
  qp->handle_ = handle;
  if (device.peer_directory() != nullptr) qp->prepare_wiring();
  qp->queues_.send_cq()->add_user(qp);
  qp->queues_.recv_cq()->add_user(qp);
  return handle;
}

QueuePairImpl::QueuePairImpl(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options,
                             ObjectCount counted, Number number)
    : QpHost(std::move(pd), options, std::move(number)),
      counted_(std::move(counted)),
      context_(options.context),
      type_(options.type),
      remote_access_(Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic),
      lane_(*this, device_, queues_.sends()) {
  device_.add_source(this);
  of_domain_.emplace(*pd_, queues_.srq());
}

QueuePairImpl::~QueuePairImpl() {
  if (device_.usable()) lane_.stop();
  device_.remove_source(this);
}

QpAttributes QueuePairImpl::query() const {
  QpAttributes a{};
  a.state = state();
  a.caps = caps();
  a.ird = ird_.load(std::memory_order_relaxed);
  a.ord = ord_.load(std::memory_order_relaxed);
  a.remote_access = remote_access_.load(std::memory_order_relaxed);
  a.sq_outstanding = queues_.sends().size();
  a.sq_taken = queues_.sends_taken();
  a.rq_outstanding = queues_.receives_posted();
  return a;
}

std::shared_ptr<Connection> QueuePairImpl::connection() const {
  const os::SpinGuard lock(connection_lock_);
  return last_connection_.lock();
}

void QueuePairImpl::set_remote_access(Access access) {
  remote_access_.store(access, std::memory_order_relaxed);
  lane_.exclusively([&] {
    if (proto::Stream* stream = lane_.stream()) stream->allow_remote(access);
  });
}

// --- connection ---

Status QueuePairImpl::reserve_for(std::weak_ptr<QpConnection> connection) {
  if (!device_.usable() || state() != QpState::kInit) return fail(Error::kBadState);
  if (type_ != QpType::kRc) return fail(Error::kUnsupported);
  if (reserved_.exchange(true, std::memory_order_acq_rel)) return fail(Error::kBadState);
  const os::SpinGuard lock(connection_lock_);
  last_connection_ = std::move(connection);
  return {};
}

void QueuePairImpl::unreserve() { reserved_.store(false, std::memory_order_release); }

Status QueuePairImpl::attach(std::unique_ptr<io::Transport> transport,
                             const proto::StreamParams& params,
                             std::shared_ptr<QpConnection> connection) {
  assert(transport != nullptr && connection != nullptr);
  if (!device_.usable()) return fail(Error::kBadState);
  Status result;
  lane_.exclusively([&] {
    if (retired_ || state() != QpState::kInit) {
      result = fail(Error::kBadState);
      return;
    }
    auto trace = connection->take_trace();
    connection_ = std::move(connection);
    ird_.store(params.ird, std::memory_order_relaxed);
    ord_.store(params.ord, std::memory_order_relaxed);
    proto::StreamParams mine = params;
    mine.id = stream_id();
    set_wishes(mine, *transport);
    if (const auto* srq = queues_.srq()) mine.receive_pd = srq->pd()->number();
    mine.hold_completions = device_.config().completions == CompletionMode::kAcked;
    writes_seen_ = 0;
    drain_event_due_ = false;
    overflow_.store(false, std::memory_order_relaxed);
    state_.store(QpState::kRts, std::memory_order_release);
    result = os::guarded([&]() -> Status {
      const auto rights = remote_access_.load(std::memory_order_relaxed);
      if (auto linked = put_on_link(transport, mine); !linked) return linked;
      if (auto opened = lane_.open(std::move(transport), std::move(trace), mine, rights); !opened) {
        return opened;
      }
      // Epoll reports what has come already.
      lane_.transmit();
      return {};
    });
    if (!result && lane_.live()) lane_.stream()->abort();
  });
  return result;
}

void QueuePairImpl::disconnect() {
  lane_.exclusively([&] {
    proto::Stream* stream = lane_.stream();
    if (stream == nullptr) return;
    lane_.transmit(progress::Lane::kSentAtEnd);  // closing flushes what is not sent
    stream->close();
    lane_.transmit();
  });
}

void QueuePairImpl::abort() {
  lane_.exclusively([&] {
    if (proto::Stream* stream = lane_.stream()) stream->abort();
  });
}

void QueuePairImpl::cq_overflowed() {
  overflow_.store(true, std::memory_order_release);
  lane_.exclusively([] {});
}

// --- states ---

Status QueuePairImpl::modify(QpState asked) {
  if (!device_.usable()) return fail(Error::kBadState);
  if (is_wired() && asked == QpState::kReset) return reset_wired();
  if (is_wired() && asked == QpState::kError) return end_wired();
  Status result;
  lane_.exclusively([&] { result = move(asked); });
  return result;
}

// With the lane held.
Status QueuePairImpl::move(QpState asked) {
  const QpState from = state();
  QpState to = from;
  if (!follow(is_wired() ? wired_moves() : connected_moves(), to, asked)) {
    return fail(Error::kBadState);
  }
  if (to == QpState::kReset && lane_.live()) return fail(Error::kBadState);
  if (to != QpState::kSqd) drain_event_due_ = false;
  if (to == QpState::kError) return end();
  if (to == QpState::kReset) flush_to_nowhere();
  if (to == from) return {};
  if (to == QpState::kSqd) return drain();
  if (to == QpState::kInit) reserved_.store(false, std::memory_order_release);
  proto::Stream* const stream = lane_.stream();
  if (from == QpState::kSqd && stream != nullptr) stream->pause(false);
  state_.store(to, std::memory_order_release);
  if (from == QpState::kSqd) lane_.look();
  return {};
}

Status QueuePairImpl::end() {
  if (lane_.live()) {
    lane_.stream()->abort();
    return {};
  }
  const bool fresh = state_.exchange(QpState::kError) != QpState::kError;
  queues_.flush_receives();
  if (fresh) tell_last_receive();
  return {};
}

Status QueuePairImpl::drain() {
  assert(state() == QpState::kRts);
  if (lane_.stream() == nullptr) return fail(Error::kBadState);
  lane_.transmit();  // what was posted before, though its doorbell may still wait
  lane_.stream()->pause(true);
  drain_event_due_ = true;
  state_.store(QpState::kSqd, std::memory_order_release);
  return {};
}

// --- retirement ---

// Nothing completes to the application any more, and the peer reaches no memory. What has been
// sent still arrives: the connection closes in order, in the background.
void QueuePairImpl::unlink() {
  assert(!retired_);
  retired_ = true;
  proto::Stream* stream = lane_.stream();
  if (stream != nullptr && lane_.live() && stream->state() == proto::StreamState::kRts) {
    if (is_wired()) lane_.transmit();  // an Ack that waits is the peer's completion
    stream->close();
  }
  state_.store(QpState::kError, std::memory_order_release);
}

void QueuePairImpl::retire() {
  if (!device_.usable()) return;  // a child of fork(): the parent's connection is not ours to end
  if (wired_.wiring != nullptr) wired_.wiring->stop();
  lane_.exclusively([&] { unlink(); });
  lane_.close_in_background();
  std::shared_ptr<CompletionQueueImpl> send_cq;
  std::shared_ptr<CompletionQueueImpl> recv_cq;
  lane_.exclusively([&] {
    std::tie(send_cq, recv_cq) = queues_.retire();
    flush_to_nowhere();
  });
  send_cq->remove_user(this);
  recv_cq->remove_user(this);
  of_domain_.reset();
}

}  // namespace weft::verbs
