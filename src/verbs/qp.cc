// Life of a queue pair: creation, hand-over of a connection, states, retirement.
#include "verbs/qp.h"

#include <weft/limits.h>

#include <algorithm>

#include "io/log.h"
#include "verbs/channel.h"
#include "verbs/connection.h"
#include "verbs/cq.h"
#include "verbs/pd.h"
#include "verbs/progress.h"
#include "verbs/qp_exclusive.h"
#include "verbs/srq.h"

namespace weft::verbs {

namespace {

bool caps_legal(const QpOptions& o) {
  const bool own_rq = o.srq == nullptr;
  return o.max_send_wr <= limits::kWorkRequestsPerQueue &&
         (!own_rq || o.max_recv_wr <= limits::kWorkRequestsPerQueue) &&
         o.max_send_sge <= limits::kSgesPerRequest && o.max_recv_sge <= limits::kSgesPerRequest &&
         o.max_inline_bytes <= limits::kInlineBytes;
}

}  // namespace

Result<std::shared_ptr<QueuePair>> QueuePairImpl::create(std::shared_ptr<ProtectionDomainImpl> pd,
                                                         const QpOptions& options) {
  if (options.send_cq == nullptr || options.recv_cq == nullptr) {
    return fail(Error::kInvalidArgument);
  }
  if (!caps_legal(options)) return fail(Error::kLimitExceeded);
  DeviceImpl& device = *pd->device_impl();
  if (auto taken = device.acquire(ObjectKind::kQp); !taken) return fail(taken.error());
  std::shared_ptr<QueuePairImpl> qp(
      new QueuePairImpl(std::move(pd), options, device.take_number()));
  if (auto done = qp->allocate(options); !done) return fail(done.error());
  std::shared_ptr<QueuePair> handle(qp.get(), [qp](QueuePair*) mutable {
    qp->retire();
    qp.reset();
  });
  qp->handle_ = handle;
  return handle;
}

QueuePairImpl::QueuePairImpl(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options,
                             std::uint32_t number)
    : pd_(std::move(pd)),
      device_(*pd_->device_impl()),
      number_(number),
      context_(options.context),
      signal_all_(options.signal_all),
      send_cq_(std::static_pointer_cast<CompletionQueueImpl>(options.send_cq)),
      recv_cq_(std::static_pointer_cast<CompletionQueueImpl>(options.recv_cq)),
      srq_(std::static_pointer_cast<SharedReceiveQueueImpl>(options.srq)),
      remote_access_(Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic) {
  pd_->add_user();
  pd_->add_qp();
  send_cq_->add_user();
  recv_cq_->add_user();
  if (srq_ != nullptr) srq_->add_user();
  device_.add_source(this);
}

QueuePairImpl::~QueuePairImpl() {
  device_.remove_source(this);
  device_.free_number(number_);
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
  const std::lock_guard lock(connection_lock_);
  return last_connection_.lock();
}

void QueuePairImpl::set_remote_access(Access access) {
  remote_access_.store(access, std::memory_order_relaxed);
  exclusively([&] {
    if (stream_) stream_->allow_remote(access);
  });
}

// --- connection ---

Status QueuePairImpl::reserve_for(ConnectionImpl& connection) {
  if (!device_.usable() || state() != QpState::kInit) return fail(Error::kBadState);
  if (reserved_.exchange(true, std::memory_order_acq_rel)) return fail(Error::kBadState);
  const std::lock_guard lock(connection_lock_);
  last_connection_ = connection.weak_from_this();
  return {};
}

void QueuePairImpl::unreserve() { reserved_.store(false, std::memory_order_release); }

Status QueuePairImpl::attach(io::Fd socket, const proto::StreamParams& params,
                             std::span<const std::uint8_t> surplus,
                             std::shared_ptr<ConnectionImpl> connection) {
  if (!device_.usable()) return fail(Error::kBadState);
  Status result;
  exclusively([&] {
    if (retired_ || state() != QpState::kInit) {
      result = fail(Error::kBadState);
      return;
    }
    trace_ = connection->take_trace();
    connection_ = std::move(connection);
    ird_.store(params.ird, std::memory_order_relaxed);
    ord_.store(params.ord, std::memory_order_relaxed);
    socket_ = std::move(socket);
    proto::StreamParams mine = params;
    mine.id = stream_id();
    mine.hold_completions = device_.config().completions == CompletionMode::kAcked;
    state_.store(QpState::kRts, std::memory_order_release);
    live_.store(true, std::memory_order_release);
    stream_.emplace(mine, *this, device_.stags(), sq_);
    stream_->allow_remote(remote_access_.load(std::memory_order_relaxed));
    has_stream_.store(true, std::memory_order_release);
    self_ = shared_from_this();
    device_.note_up(1);
    stream_->start();
    send_cq_->attach(*this);
    recv_cq_->attach(*this);
    if (trace_ != nullptr) trace_->rx(surplus);
    stream_->feed(surplus);
    const std::uint32_t events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    result = device_.engine().add(socket_.get(), events, this);
    if (!result) {
      stream_->abort();
      return;
    }
    (void)run(false);
  });
  return result;
}

void QueuePairImpl::disconnect() {
  exclusively([&] {
    if (!stream_) return;
    transmit();
    stream_->close();
    transmit();
  });
}

void QueuePairImpl::abort() {
  exclusively([&] {
    if (stream_) stream_->abort();
  });
}

void QueuePairImpl::cq_overflowed() {
  overflow_.store(true, std::memory_order_release);
  exclusively([] {});
}

// --- states ---

Status QueuePairImpl::modify(QpState to) {
  if (!device_.usable()) return fail(Error::kBadState);
  Status result;
  exclusively([&] {
    const QpState from = state();
    switch (to) {
      case QpState::kError:
        if (stream_ && live()) {
          stream_->abort();
        } else {
          state_.store(QpState::kError, std::memory_order_release);
          flush_receives();
        }
        return;
      case QpState::kReset:
        if (live()) break;
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
          if (stream_) stream_->pause(false);
          state_.store(QpState::kRts, std::memory_order_release);
          (void)run(false);
          return;
        }
        // The connection makes these moves; asking for them is part of every verbs program.
        if (from == QpState::kInit || from == QpState::kRtr || from == QpState::kRts) return;
        break;
      case QpState::kSqd:
        if (from == QpState::kSqd) return;
        if (from != QpState::kRts || !stream_) break;
        stream_->pause(true);
        drain_event_due_ = true;
        state_.store(QpState::kSqd, std::memory_order_release);
        return;
      case QpState::kSqe: break;
    }
    result = fail(Error::kBadState);
  });
  return result;
}

// --- retirement ---

void QueuePairImpl::leave_foster() {
  std::shared_ptr<CompletionQueueImpl> foster;
  {
    const std::lock_guard lock(foster_lock_);
    over_ = true;
    foster = foster_.lock();
  }
  if (foster != nullptr) foster->detach(*this);
}

void QueuePairImpl::retire() {
  if (!device_.usable()) return;  // a child of fork(): the parent's connection is not ours to end
  exclusively([&] {
    retired_ = true;
    // An orderly end under way is carried out; full operation ends at once.
    if (stream_ && stream_->state() == proto::StreamState::kRts) stream_->abort();
    state_.store(QpState::kError, std::memory_order_release);
  });
  send_cq_->detach(*this);
  recv_cq_->detach(*this);
  leave_foster();
  std::shared_ptr<CompletionQueueImpl> send_cq;
  std::shared_ptr<CompletionQueueImpl> recv_cq;
  exclusively([&] {
    send_cq = std::move(send_cq_);
    recv_cq = std::move(recv_cq_);
    flush_to_nowhere();
  });
  send_cq->release_user();
  recv_cq->release_user();
  if (srq_ != nullptr) {
    if (reserved_.load(std::memory_order_acquire)) raise(AsyncEventType::kQpLastWqeReached);
    srq_->drop_user();
  }
  pd_->drop_qp();
  pd_->drop_user();
}

}  // namespace weft::verbs
