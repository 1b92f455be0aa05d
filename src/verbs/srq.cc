#include "verbs/srq.h"

#include <weft/limits.h>

#include <cassert>
#include <new>

#include "verbs/posting.h"

namespace weft::verbs {

Result<std::shared_ptr<SharedReceiveQueueImpl>> SharedReceiveQueueImpl::create(
    std::shared_ptr<ProtectionDomainImpl> pd, const SrqOptions& options) {
  if (options.max_wr == 0 || options.limit > options.max_wr) return fail(Error::kInvalidArgument);
  if (options.max_wr > limits::kWorkRequestsPerQueue || options.max_sge > limits::kSgesPerRequest) {
    return fail(Error::kLimitExceeded);
  }
  auto counted = ObjectCount::take(*pd->device_impl(), ObjectKind::kSrq);
  if (!counted) return fail(counted.error());
  std::shared_ptr<SharedReceiveQueueImpl> srq(
      new SharedReceiveQueueImpl(std::move(pd), options, std::move(*counted)));
  const os::MutexLock lock(srq->mutex_);
  if (!srq->ring_->allocate(options.max_wr, srq->max_sge_ * sizeof(Sge))) {
    return fail(Error::kNoMemory);
  }
  return srq;
}

SharedReceiveQueueImpl::SharedReceiveQueueImpl(std::shared_ptr<ProtectionDomainImpl> pd,
                                               const SrqOptions& options, ObjectCount counted)
    : pd_(std::move(pd)),
      counted_(std::move(counted)),
      number_(Number::take(*pd_->device_impl())),
      max_sge_(std::max(options.max_sge, 1U)),
      context_(options.context),
      ring_(std::make_unique<proto::RecvQueue>()),
      limit_(options.limit) {
  assert(limit_ <= options.max_wr);
  pd_->add_user();
}

SharedReceiveQueueImpl::~SharedReceiveQueueImpl() { pd_->drop_user(); }

Posted SharedReceiveQueueImpl::post_recv(std::span<const RecvWr> wrs) {
  Posted posted;
  if (!pd_->device_impl()->usable()) {
    posted.error = Error::kBadState;
    return posted;
  }
  const os::MutexLock lock(mutex_);
  return queue_receives(wrs, max_sge_, *ring_, nullptr);
}

bool SharedReceiveQueueImpl::take(proto::RecvWqe& out) {
  bool limit_reached = false;
  {
    const os::MutexLock lock(mutex_);
    assert(limit_ <= ring_->capacity());
    if (ring_->head() == ring_->tail()) return false;
    copy_recv(ring_->at(ring_->head()), out);
    ring_->retire();
    if (limit_ != 0 && ring_->size() < limit_) {
      limit_ = 0;
      limit_reached = true;
    }
  }
  if (limit_reached) raise_limit();
  return true;
}

void SharedReceiveQueueImpl::raise_limit() {
  AsyncEvent event;
  event.type = AsyncEventType::kSrqLimitReached;
  event.srq = weak_from_this();
  event.object = static_cast<const SharedReceiveQueue*>(this);
  pd_->device_impl()->raise(std::move(event));
}

Status SharedReceiveQueueImpl::set_limit(std::uint32_t limit) {
  if (!pd_->device_impl()->usable()) return fail(Error::kBadState);
  bool reached = false;
  {
    const os::MutexLock lock(mutex_);
    if (limit > ring_->capacity()) return fail(Error::kInvalidArgument);
    limit_ = limit;
    if (limit_ != 0 && ring_->size() < limit_) {
      limit_ = 0;
      reached = true;
    }
  }
  if (reached) raise_limit();
  return {};
}

Status SharedReceiveQueueImpl::resize(std::uint32_t max_wr) {
  if (!pd_->device_impl()->usable()) return fail(Error::kBadState);
  if (max_wr == 0 || max_wr > limits::kWorkRequestsPerQueue) {
    return fail(Error::kInvalidArgument);
  }
  const os::MutexLock lock(mutex_);
  if (max_wr < ring_->size() || max_wr < limit_) return fail(Error::kInvalidArgument);
  std::unique_ptr<proto::RecvQueue> larger(new (std::nothrow) proto::RecvQueue);
  if (larger == nullptr || !larger->allocate(max_wr, max_sge_ * sizeof(Sge)))
    return fail(Error::kNoMemory);
  while (ring_->head() != ring_->tail()) {
    proto::RecvWqe* const place = larger->reserve();
    assert(place != nullptr);  // it has room for all of the old one
    copy_recv(ring_->at(ring_->head()), *place);
    larger->commit();
    ring_->retire();
  }
  ring_ = std::move(larger);
  return {};
}

std::uint32_t SharedReceiveQueueImpl::max_wr() const {
  const os::MutexLock lock(mutex_);
  return ring_->capacity();
}

std::uint32_t SharedReceiveQueueImpl::limit() const {
  const os::MutexLock lock(mutex_);
  return limit_;
}

std::uint32_t SharedReceiveQueueImpl::posted() const {
  const os::MutexLock lock(mutex_);
  return ring_->size();
}

}  // namespace weft::verbs
