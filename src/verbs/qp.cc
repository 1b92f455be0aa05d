// Life of a queue pair: creation, hand-over of a connection, states, retirement.
#include "verbs/qp.h"

#include <weft/limits.h>

#include <algorithm>

#include "io/log.h"
#include "verbs/channel.h"
#include "verbs/connection.h"
#include "verbs/cq.h"
#include "verbs/pd.h"
#include "verbs/poller.h"
#include "verbs/posting.h"
#include "verbs/srq.h"
#include "verbs/wiring.h"

namespace weft::verbs {

Result<std::shared_ptr<QueuePair>> QueuePairImpl::create(std::shared_ptr<ProtectionDomainImpl> pd,
                                                         const QpOptions& options) {
  if (options.send_cq == nullptr || options.recv_cq == nullptr) {
    return fail(Error::kInvalidArgument);
  }
  if (!caps_legal(options)) return fail(Error::kLimitExceeded);
  DeviceImpl& device = *pd->device_impl();
  if (options.type != QpType::kRc && device.rendezvous() == nullptr) {
    return fail(Error::kUnsupported);
  }
  if (auto taken = device.acquire(ObjectKind::kQp); !taken) return fail(taken.error());
  auto number = device.take_qp_number();
  if (!number) {
    device.release(ObjectKind::kQp);
    return fail(number.error());
  }
  std::shared_ptr<QueuePairImpl> qp(new QueuePairImpl(std::move(pd), options, *number));
  if (auto done = qp->allocate(options); !done) return fail(done.error());
  std::shared_ptr<QueuePair> handle(qp.get(), [qp](QueuePair*) mutable {
    qp->retire();
    qp.reset();
  });
  qp->handle_ = handle;
  if (device.rendezvous() != nullptr) qp->prepare_wiring();
  qp->send_cq_->add_user(qp);
  qp->recv_cq_->add_user(qp);
  if (auto tied = device.tie(*qp->send_cq_, *qp->recv_cq_); !tied) return fail(tied.error());
  return handle;
}

QueuePairImpl::QueuePairImpl(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options,
                             std::uint32_t number)
    : pd_(std::move(pd)),
      device_(*pd_->device_impl()),
      number_(number),
      context_(options.context),
      type_(options.type),
      signal_all_(options.signal_all),
      send_cq_(std::static_pointer_cast<CompletionQueueImpl>(options.send_cq)),
      recv_cq_(std::static_pointer_cast<CompletionQueueImpl>(options.recv_cq)),
      srq_(std::static_pointer_cast<SharedReceiveQueueImpl>(options.srq)),
      remote_access_(Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic),
      lane_(*this, device_, sq_) {
  pd_->add_user();
  pd_->add_qp();
  if (srq_ != nullptr) srq_->add_user();
  device_.add_source(this);
}

QueuePairImpl::~QueuePairImpl() {
  if (device_.usable()) lane_.stop();
  device_.remove_source(this);
  device_.free_qp_number(number_);
  device_.release(ObjectKind::kQp);
}

Status QueuePairImpl::allocate(const QpOptions& o) {
  const std::size_t sge_bytes = o.max_send_sge * sizeof(Sge);
  const std::size_t tail =
      std::max({proto::kSendTailMin, sge_bytes, static_cast<std::size_t>(o.max_inline_bytes)});
  if (!sq_.allocate(std::max(o.max_send_wr, 1U), tail)) return fail(Error::kNoMemory);
  caps_.max_send_wr = o.max_send_wr == 0 ? 0 : sq_.capacity();
  caps_.max_send_sge = std::max(o.max_send_sge, 1U);
  caps_.max_inline_bytes =
      static_cast<std::uint32_t>(std::min<std::size_t>(sq_.tail_bytes(), limits::kInlineBytes));
  if (srq_ != nullptr) return {};
  const std::uint32_t recv_sge = std::max(o.max_recv_sge, 1U);
  if (!rq_.allocate(std::max(o.max_recv_wr, 1U), recv_sge * sizeof(Sge))) {
    return fail(Error::kNoMemory);
  }
  caps_.max_recv_wr = o.max_recv_wr == 0 ? 0 : rq_.capacity();
  caps_.max_recv_sge = recv_sge;
  return {};
}

proto::StreamId QueuePairImpl::stream_id() const { return {pd_->number(), number_}; }

QpAttributes QueuePairImpl::query() const {
  QpAttributes a{};
  a.state = state();
  a.caps = caps_;
  a.ird = ird_.load(std::memory_order_relaxed);
  a.ord = ord_.load(std::memory_order_relaxed);
  a.remote_access = remote_access_.load(std::memory_order_relaxed);
  a.sq_outstanding = sq_.size();
  a.rq_outstanding = caps_.max_recv_sge == 0 ? 0 : rq_.size();
  return a;
}

std::shared_ptr<Connection> QueuePairImpl::connection() const {
  const io::SpinGuard lock(connection_lock_);
  return last_connection_.lock();
}

void QueuePairImpl::set_remote_access(Access access) {
  remote_access_.store(access, std::memory_order_relaxed);
  lane_.exclusively([&] {
    if (proto::Stream* stream = lane_.stream()) stream->allow_remote(access);
  });
}

// --- connection ---

Status QueuePairImpl::reserve_for(ConnectionImpl& connection) {
  if (!device_.usable() || state() != QpState::kInit) return fail(Error::kBadState);
  if (type_ != QpType::kRc) return fail(Error::kUnsupported);
  if (reserved_.exchange(true, std::memory_order_acq_rel)) return fail(Error::kBadState);
  const io::SpinGuard lock(connection_lock_);
  last_connection_ = connection.weak_from_this();
  return {};
}

void QueuePairImpl::unreserve() { reserved_.store(false, std::memory_order_release); }

Status QueuePairImpl::attach(std::unique_ptr<io::Transport> transport,
                             const proto::StreamParams& params,
                             std::shared_ptr<ConnectionImpl> connection) {
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
    mine.hold_completions = device_.config().completions == CompletionMode::kAcked;
    writes_seen_ = 0;
    overflow_.store(false, std::memory_order_relaxed);
    state_.store(QpState::kRts, std::memory_order_release);
    result = lane_.open(std::move(transport), std::move(trace), mine,
                        remote_access_.load(std::memory_order_relaxed), poller());
    if (result) lane_.look_alone();
  });
  return result;
}

void QueuePairImpl::disconnect() {
  lane_.exclusively([&] {
    proto::Stream* stream = lane_.stream();
    if (stream == nullptr) return;
    lane_.transmit(Lane::kSentAtEnd);  // closing flushes what is not sent
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

Status QueuePairImpl::modify(QpState to) {
  if (!device_.usable()) return fail(Error::kBadState);
  return is_wired() ? modify_wired(to) : modify_connected(to);
}

Status QueuePairImpl::modify_connected(QpState to) {
  Status result;
  lane_.exclusively([&] {
    const QpState from = state();
    switch (to) {
      case QpState::kError:
        if (lane_.live()) {
          lane_.stream()->abort();
        } else {
          state_.store(QpState::kError, std::memory_order_release);
          flush_receives();
        }
        return;
      case QpState::kReset:
        if (lane_.live()) break;
        flush_to_nowhere();
        state_.store(QpState::kReset, std::memory_order_release);
        return;
      case QpState::kInit:
        if (from != QpState::kInit && from != QpState::kReset) break;
        if (from == QpState::kReset) {
          reserved_.store(false, std::memory_order_release);
          state_.store(QpState::kInit, std::memory_order_release);
        }
        return;
      case QpState::kRtr:
      case QpState::kRts:
        if (from == QpState::kSqd && to == QpState::kRts) {
          if (proto::Stream* stream = lane_.stream()) stream->pause(false);
          state_.store(QpState::kRts, std::memory_order_release);
          lane_.look_alone();
          return;
        }
        // The connection makes these moves; asking for them is part of every verbs program.
        if (from == QpState::kInit || from == QpState::kRtr || from == QpState::kRts) return;
        break;
      case QpState::kSqd:
        if (from == QpState::kSqd) return;
        if (from != QpState::kRts || lane_.stream() == nullptr) break;
        lane_.transmit();  // what was posted before, though its doorbell may still wait
        lane_.stream()->pause(true);
        drain_event_due_ = true;
        state_.store(QpState::kSqd, std::memory_order_release);
        return;
      case QpState::kSqe: break;
    }
    result = fail(Error::kBadState);
  });
  return result;
}

// --- pollers ---

// The one that send CQ and receive CQ share.
std::shared_ptr<Poller> QueuePairImpl::poller() const {
  return recv_cq_->poller().shared_from_this();
}

// --- retirement ---

// Nothing completes to the application any more, and the peer reaches no memory. What has been
// sent still arrives: the connection closes in order, in the background.
void QueuePairImpl::unlink() {
  retired_ = true;
  proto::Stream* stream = lane_.stream();
  if (stream != nullptr && lane_.live() && stream->state() == proto::StreamState::kRts) {
    if (is_wired()) lane_.transmit();  // an Ack that waits is the peer's completion
    stream->close();
  }
  state_.store(QpState::kError, std::memory_order_release);
  if (!lane_.live()) return;
  if (auto background = device_.background_poller()) {
    lane_.move_to(std::move(*background));
  } else {
    stream->abort();
  }
}

void QueuePairImpl::retire() {
  if (!device_.usable()) return;  // a child of fork(): the parent's connection is not ours to end
  if (wiring_ != nullptr) wiring_->stop();
  lane_.exclusively([&] { unlink(); });
  std::shared_ptr<CompletionQueueImpl> send_cq;
  std::shared_ptr<CompletionQueueImpl> recv_cq;
  lane_.exclusively([&] {
    send_cq = std::move(send_cq_);
    recv_cq = std::move(recv_cq_);
    flush_to_nowhere();
  });
  send_cq->remove_user(this);
  recv_cq->remove_user(this);
  if (srq_ != nullptr) {
    if (reserved_.load(std::memory_order_acquire)) raise(AsyncEventType::kQpLastWqeReached);
    srq_->drop_user();
  }
  pd_->drop_qp();
  pd_->drop_user();
}

}  // namespace weft::verbs
