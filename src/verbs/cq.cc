#include "verbs/cq.h"

#include <weft/limits.h>

#include <algorithm>
#include <new>

#include "verbs/channel.h"
#include "verbs/device.h"
#include "verbs/qp.h"

namespace weft::verbs {

Result<std::shared_ptr<CompletionQueueImpl>> CompletionQueueImpl::create(
    std::shared_ptr<DeviceImpl> device, const CqOptions& options) {
  if (options.depth == 0) return fail(Error::kInvalidArgument);
  if (options.depth > limits::kCompletionsPerQueue) return fail(Error::kLimitExceeded);
  if (auto taken = device->acquire(ObjectKind::kCq); !taken) return fail(taken.error());
  std::shared_ptr<CompletionQueueImpl> cq(new CompletionQueueImpl(std::move(device), options));
  if (!cq->allocate(options.depth)) return fail(Error::kNoMemory);
  if (cq->channel_ != nullptr) cq->channel_->add(*cq);
  cq->device_->add_source(cq.get());
  return cq;
}

CompletionQueueImpl::CompletionQueueImpl(std::shared_ptr<DeviceImpl> device,
                                         const CqOptions& options)
    : device_(std::move(device)),
      channel_(std::static_pointer_cast<CompletionChannelImpl>(options.channel)),
      context_(options.context) {}

CompletionQueueImpl::~CompletionQueueImpl() {
  device_->forget_poller(this);
  device_->remove_source(this);
  if (channel_ != nullptr) channel_->remove(*this);
  device_->release(ObjectKind::kCq);
}

bool CompletionQueueImpl::allocate(std::uint32_t depth) {
  void* memory =
      std::aligned_alloc(64, (std::size_t{depth} * sizeof(WorkCompletion) + 63) / 64 * 64);
  if (memory == nullptr) return false;
  ring_.reset(static_cast<WorkCompletion*>(memory));
  depth_ = depth;
  return true;
}

std::shared_ptr<CompletionChannel> CompletionQueueImpl::channel() const { return channel_; }

// --- completions ---

std::size_t CompletionQueueImpl::poll(std::span<WorkCompletion> out) {
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  std::size_t taken = take(out);
  // Who got something will be back; but some always ask for just what there is. Doorbells that wait
  // for this poll are not put off unless there is more to take.
  const bool may_return = taken == out.size() || !doorbell_due_.load(std::memory_order_relaxed);
  if (taken != 0 && may_return && polls % kFullPollsToDrive != 0) return taken;
  if (own_count_.load(std::memory_order_relaxed) !=
      std::min<std::uint32_t>(member_count_.load(std::memory_order_relaxed), kHotMax)) {
    adopt_members();
  }
  if (offered_.load(std::memory_order_acquire)) take_offers();
  drive();
  taken += take(out.subspan(taken));
  if (taken == 0) {
    const std::uint64_t in_vain = empty_polls_.load(std::memory_order_relaxed) + 1;
    empty_polls_.store(in_vain, std::memory_order_relaxed);
    if (in_vain % kPollsToFoster == 0) device_->note_poller(shared_from_this());
  }
  return taken;
}

void CompletionQueueImpl::add_counters(Counters& sum) const {
  sum.polls += polls_.load(std::memory_order_relaxed);
  sum.empty_polls += empty_polls_.load(std::memory_order_relaxed);
}

std::size_t CompletionQueueImpl::take(std::span<WorkCompletion> out) {
  if (count_.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(lock_);
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), count));
  for (std::uint32_t i = 0; i < n; ++i) {
    out[i] = ring_[head_];
    if (++head_ == depth_) head_ = 0;
  }
  count_.store(count - n, std::memory_order_release);
  return n;
}

void CompletionQueueImpl::push(const WorkCompletion& wc, bool solicited) {
  bool fire = false;
  bool overflowed = false;
  {
    const std::lock_guard lock(lock_);
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    if (count == depth_) {
      overflowed = !overflowed_.exchange(true, std::memory_order_acq_rel);
    } else {
      std::uint32_t at = head_ + count;
      if (at >= depth_) at -= depth_;
      new (&ring_[at]) WorkCompletion(wc);
      count_.store(count + 1, std::memory_order_release);
      const std::uint8_t armed = armed_.load(std::memory_order_relaxed);
      if (armed != kNotArmed && (armed == kArmedNext || solicited)) {
        armed_.store(kNotArmed, std::memory_order_relaxed);
        fire = true;
      }
    }
  }
  if (fire) channel_->notify(*this);
  if (overflowed) overflow();
}

// Hurts this CQ's QPs only. They are failed from the background thread: this one is inside a
// stream.
void CompletionQueueImpl::overflow() {
  AsyncEvent event;
  event.type = AsyncEventType::kCqError;
  event.cq = weak_from_this();
  event.object = this;
  device_->raise(std::move(event));
  (void)device_->engine().post([weak = weak_from_this()] {
    if (const auto cq = weak.lock()) cq->fail_members();
  });
}

void CompletionQueueImpl::fail_members() {
  std::vector<std::shared_ptr<QueuePairImpl>> members;
  {
    const std::lock_guard lock(drive_lock_);
    for (QueuePairImpl* qp : members_) {
      if (auto held = qp->weak_from_this().lock()) members.push_back(std::move(held));
    }
  }
  for (const auto& qp : members) qp->cq_overflowed();
}

Status CompletionQueueImpl::arm(Arm what) {
  if (channel_ == nullptr) return fail(Error::kBadState);
  if (!device_->usable()) return fail(Error::kBadState);
  {
    const std::lock_guard lock(lock_);
    const std::uint8_t armed = armed_.load(std::memory_order_relaxed);
    // Armed for any completion is more than armed for solicited ones.
    if (armed != kArmedNext) {
      armed_.store(what == Arm::kNext ? kArmedNext : kArmedSolicited, std::memory_order_relaxed);
    }
  }
  // The caller may be about to sleep in poll(2), where it drives nothing.
  if (!channel_->is_slept_on()) release_adopted();
  if (doorbell_due_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(drive_lock_);
    ring_collected();
  }
  return {};
}

Status CompletionQueueImpl::resize(std::uint32_t depth) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (depth == 0 || depth > limits::kCompletionsPerQueue) return fail(Error::kInvalidArgument);
  const std::lock_guard lock(lock_);
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (depth < count) return fail(Error::kInvalidArgument);
  const std::unique_ptr<WorkCompletion[], FreeDeleter> old = std::move(ring_);
  const std::uint32_t old_depth = depth_;
  if (!allocate(depth)) {
    ring_.reset(const_cast<std::unique_ptr<WorkCompletion[], FreeDeleter>&>(old).release());
    return fail(Error::kNoMemory);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    new (&ring_[i]) WorkCompletion(old[(head_ + i) % old_depth]);
  }
  head_ = 0;
  return {};
}

void CompletionQueueImpl::ack_events(std::uint32_t count) {
  if (count == 0) return;
  const std::lock_guard lock(ack_mutex_);
  unacked_.fetch_sub(count, std::memory_order_acq_rel);
  acked_.notify_all();
}

void CompletionQueueImpl::wait_for_acks() {
  std::unique_lock lock(ack_mutex_);
  acked_.wait(lock, [&] { return unacked_.load(std::memory_order_acquire) == 0; });
}

// --- connections driven by callers ---

void CompletionQueueImpl::attach(QueuePairImpl& qp) {
  const std::lock_guard lock(drive_lock_);
  if (std::ranges::find(members_, &qp) != members_.end()) return;
  members_.push_back(&qp);
  member_count_.store(static_cast<std::uint32_t>(members_.size()), std::memory_order_relaxed);
}

void CompletionQueueImpl::detach(QueuePairImpl& qp) {
  const std::lock_guard lock(drive_lock_);
  std::erase(members_, &qp);
  member_count_.store(static_cast<std::uint32_t>(members_.size()), std::memory_order_relaxed);
  keep_hot([&](QueuePairImpl* hot) { return hot != &qp; });
  {
    const std::lock_guard offers_lock(offers_lock_);
    std::erase_if(offers_, [&](const Offer& o) { return o.qp == &qp; });
  }
  const std::lock_guard doorbells_lock(doorbells_lock_);
  std::erase(doorbells_, &qp);
}

bool CompletionQueueImpl::is_member(const QueuePairImpl& qp) const {
  return std::ranges::find(members_, &qp) != members_.end();
}

bool CompletionQueueImpl::is_hot(const QueuePairImpl& qp) const {
  const auto end = hot_.begin() + hot_count_.load(std::memory_order_relaxed);
  return std::find(hot_.begin(), end, &qp) != end;
}

// Shortens the list of what is driven to what `stays`.
template <class Predicate>
void CompletionQueueImpl::keep_hot(Predicate stays) {
  const std::uint32_t count = hot_count_.load(std::memory_order_relaxed);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    QueuePairImpl* qp = hot_[i];
    if (stays(qp)) hot_[kept++] = qp;
  }
  if (kept == count) return;
  hot_count_.store(kept, std::memory_order_relaxed);
  count_own();
}

void CompletionQueueImpl::count_own() {
  const auto end = hot_.begin() + hot_count_.load(std::memory_order_relaxed);
  const auto own = std::count_if(hot_.begin(), end, [&](auto* qp) { return is_member(*qp); });
  own_count_.store(static_cast<std::uint32_t>(own), std::memory_order_relaxed);
}

bool CompletionQueueImpl::drive() {
  const bool doorbells = doorbell_due_.load(std::memory_order_acquire);
  if (hot_count_.load(std::memory_order_relaxed) == 0 && !doorbells) return false;
  if (!drive_lock_.try_lock()) return true;
  const std::lock_guard lock(drive_lock_, std::adopt_lock);
  if (doorbells) ring_collected();
  bool moved = false;
  keep_hot([&](QueuePairImpl* qp) {
    if (!qp->adopted()) return false;  // taken back by the background thread, or over
    moved |= qp->progress();
    return true;
  });
  return moved;
}

bool CompletionQueueImpl::note_doorbell(QueuePairImpl& qp) {
  if (!qp.adopted()) {
    const std::lock_guard lock(doorbells_lock_);
    if (doorbells_.size() == kDoorbellsMax) return false;
    doorbells_.push_back(&qp);
  }
  doorbell_due_.store(true, std::memory_order_release);
  return true;
}

// Those of adopted QPs ring when these are driven.
void CompletionQueueImpl::ring_collected() {
  doorbell_due_.store(false, std::memory_order_relaxed);
  {
    const std::lock_guard lock(doorbells_lock_);
    ringing_.swap(doorbells_);
  }
  for (QueuePairImpl* qp : ringing_) qp->ring_collected();
  ringing_.clear();
}

void CompletionQueueImpl::adopt_members() {
  if (device_->config().progress == ProgressMode::kThread || armed_while_unwatched()) return;
  if (!drive_lock_.try_lock()) return;
  const std::lock_guard lock(drive_lock_, std::adopt_lock);
  // Few members: all of them. Many: only those the background thread found active, see adopt().
  if (members_.size() > kHotMax) return;
  for (QueuePairImpl* qp : members_) adopt_locked(*qp);
}

void CompletionQueueImpl::offer(QueuePairImpl& qp, bool fostered) {
  if (device_->config().progress == ProgressMode::kThread) return;
  const std::lock_guard lock(offers_lock_);
  const auto known = [&](const Offer& o) { return o.qp == &qp; };
  if (offers_.size() == kHotMax || std::ranges::any_of(offers_, known)) return;
  offers_.push_back({qp.weak_from_this(), &qp, fostered});
  offered_.store(true, std::memory_order_release);
}

void CompletionQueueImpl::take_offers() {
  // Perhaps the last to hold them: let go without the lock.
  std::vector<std::shared_ptr<QueuePairImpl>> held;
  std::vector<Offer> offers;
  if (!drive_lock_.try_lock()) return;
  const std::lock_guard lock(drive_lock_, std::adopt_lock);
  {
    const std::lock_guard offers_lock(offers_lock_);
    offers.swap(offers_);
    offered_.store(false, std::memory_order_relaxed);
  }
  if (armed_while_unwatched()) return;
  for (const Offer& o : offers) {
    std::shared_ptr<QueuePairImpl> qp = o.held.lock();
    if (qp == nullptr) continue;
    const bool room = hot_count_.load(std::memory_order_relaxed) < kHotMax / 2;
    // A member may have been retired meanwhile; a fostered one took its offer back if it was.
    if (o.fostered ? room : is_member(*qp)) adopt_locked(*qp);
    held.push_back(std::move(qp));
  }
}

// A caller that armed the CQ and is not in wait() may be asleep in poll(2).
bool CompletionQueueImpl::armed_while_unwatched() const {
  return armed() && !channel_->is_slept_on();
}

void CompletionQueueImpl::nobody_sleeps() {
  if (channel_ != nullptr) channel_->expect_no_sleeper();
}

bool CompletionQueueImpl::has_sleeper() const {
  return channel_ != nullptr && channel_->has_sleeper();
}

void CompletionQueueImpl::adopt_locked(QueuePairImpl& qp) {
  if (!qp.live()) return;
  const std::uint32_t count = hot_count_.load(std::memory_order_relaxed);
  const bool known = is_hot(qp);
  if (known ? qp.adopted() : count == kHotMax) return;
  qp.adopt();
  if (!known) {
    hot_[count] = &qp;
    hot_count_.store(count + 1, std::memory_order_relaxed);
    count_own();
  }
  // Last: a sleeper that is woken by it has to find the QP in the list.
  if (channel_ != nullptr) channel_->watch(qp.socket());
}

// True if a thread asleep in wait() is woken by this QP's socket, and then drives it. Empty: not to
// be known now.
std::optional<bool> CompletionQueueImpl::watched_by_sleeper(const QueuePairImpl& qp) {
  if (!has_sleeper()) return false;
  if (!drive_lock_.try_lock()) return {};
  const std::lock_guard lock(drive_lock_, std::adopt_lock);
  return is_hot(qp);
}

// A program asleep until its sends complete, with none left, sleeps for ever - unless it means to
// be woken by what a peer has written into its memory, which makes no completion.
void CompletionQueueImpl::wake_idle() {
  if (!armed()) return;
  {
    const std::lock_guard lock(lock_);
    if (count_.load(std::memory_order_relaxed) != 0) return;
    if (armed_.load(std::memory_order_relaxed) == kNotArmed) return;
    armed_.store(kNotArmed, std::memory_order_relaxed);
  }
  channel_->notify(*this);
}

void CompletionQueueImpl::release_adopted() {
  if (hot_count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(drive_lock_);
  const std::uint32_t count = hot_count_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) hot_[i]->release();
  hot_count_.store(0, std::memory_order_relaxed);
  own_count_.store(0, std::memory_order_relaxed);
}

}  // namespace weft::verbs
