#include "verbs/cq.h"

#include <weft/limits.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <new>
#include <vector>

#include "os/cancel.h"
#include "progress/give_way.h"
#include "verbs/completion_channel.h"
#include "verbs/device.h"

namespace weft::verbs {

namespace {

// Receive queues are as long as the next power of two, and say so. A program that fills them has to
// find a completion queue of the same length that it asked for as long.
std::uint32_t room_for(std::uint32_t depth) { return std::bit_ceil(depth); }
static_assert(std::has_single_bit(limits::kCompletionsPerQueue));

}  // namespace

Result<std::shared_ptr<CompletionQueueImpl>> CompletionQueueImpl::create(
    std::shared_ptr<DeviceImpl> device, const CqOptions& options) {
  if (options.depth == 0) return fail(Error::kInvalidArgument);
  if (options.depth > limits::kCompletionsPerQueue) return fail(Error::kLimitExceeded);
  auto counted = ObjectCount::take(*device, ObjectKind::kCq);
  if (!counted) return fail(counted.error());
  std::shared_ptr<CompletionQueueImpl> cq(
      new CompletionQueueImpl(std::move(device), std::move(*counted), options));
  {
    const os::SpinGuard lock(cq->lock_);
    if (!cq->allocate(room_for(options.depth))) return fail(Error::kNoMemory);
  }
  if (cq->channel_ != nullptr) cq->channel_->add(*cq);
  cq->device_->add_source(cq.get());
  return cq;
}

CompletionQueueImpl::CompletionQueueImpl(std::shared_ptr<DeviceImpl> device, ObjectCount counted,
                                         const CqOptions& options)
    : device_(std::move(device)),
      counted_(std::move(counted)),
      channel_(std::static_pointer_cast<CompletionChannelImpl>(options.channel)),
      context_(options.context) {}

CompletionQueueImpl::~CompletionQueueImpl() {
  device_->remove_source(this);
  if (channel_ != nullptr) channel_->remove(*this);
  // Nobody polls for what is still there: queue pairs that close in order.
  if (!device_->usable()) return;
  for (progress::Shard* shard : shards_.all()) {
    const bool empty = shard->lanes() == 0 && !shard->has_retired();
    if (empty || shard->owner().sleepers() != 0) continue;
    shard->owner().give();
    shard->run_for_others();
  }
}

void CompletionQueueImpl::add_shard(const std::shared_ptr<progress::Shard>& shard) {
  assert(shard != nullptr);
  if (channel_ == nullptr) return shards_.add(shard);
  if (shards_.contains(shard.get())) return;
  channel_->add_shard(shard);
  try {
    shards_.add(shard);
  } catch (...) {
    channel_->remove_shard(shard.get());
    throw;
  }
}

bool CompletionQueueImpl::allocate(std::uint32_t depth) {
  assert(std::has_single_bit(depth));
  void* memory = std::aligned_alloc(64, (std::size_t{depth} * sizeof(Entry) + 63) / 64 * 64);
  if (memory == nullptr) return false;
  ring_.reset(static_cast<Entry*>(memory));
  depth_ = depth;
  return true;
}

std::shared_ptr<CompletionChannel> CompletionQueueImpl::channel() const { return channel_; }

// --- completions ---

std::size_t CompletionQueueImpl::poll(std::span<WorkCompletion> out) {
  if (!device_->usable()) return 0;  // a child of fork(): the descriptors are the parent's
  const std::span<progress::Shard* const> shards = shards_.all();
  for (progress::Shard* shard : shards) shard->owner().pace().note_poll();
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  std::size_t taken = take(out);
  const bool callers_look = device_->settings().progress != ProgressMode::kThread;
  if (taken == 0 && callers_look && has_readers_.load(std::memory_order_relaxed)) {
    each_reader(&DatagramReader::look);
    taken = take(out);
  }
  if (taken != 0) {
    for (progress::Shard* shard : shards) shard->owner().something_found();
  }
  // A caller that got completions usually polls again. Posts that wait are sent when it has taken
  // all there are: by then each connection has as many requests as it will get, and they leave
  // together.
  const bool dry = taken < out.size();
  if (taken != 0 && !(dry && posts_wait()) && polls % kFullPollsToDrive != 0) return taken;
  // Whoever has armed this queue and slept on its channel polls once more and sleeps there again.
  const bool sleeps_next = taken == 0 && callers_look && armed() && channel_->take_sleeps_next();
  if (callers_look) {
    auto look = dry ? progress::Look::kPoll : progress::Look::kGlance;
    if (sleeps_next) look = progress::Look::kListed;
    for (progress::Shard* shard : shards) (void)shard->poll(look);
    taken += take(out.subspan(taken));
  }
  if (taken == 0) {
    empty_polls_.store(empty_polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (sleeps_next) return 0;
    for (progress::Shard* shard : shards) shard->owner().note_vain_poll();
    progress::give_way(*device_, shards);
    // It may have run them once more: whoever armed this queue and sleeps next is not told of what
    // its own thread has received.
    taken = take(out);
  }
  return taken;
}

bool CompletionQueueImpl::posts_wait() const {
  return std::ranges::any_of(shards_.all(), [](const auto* shard) { return shard->posts_wait(); });
}

void CompletionQueueImpl::add_counters(Counters& sum) const {
  sum.polls += polls_.load(std::memory_order_relaxed);
  sum.empty_polls += empty_polls_.load(std::memory_order_relaxed);
}

std::size_t CompletionQueueImpl::take(std::span<WorkCompletion> out) {
  if (count_.load(std::memory_order_acquire) == 0) return 0;
  const os::SpinGuard lock(lock_);
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  assert(count <= depth_ && head_ < depth_);
  const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), count));
  for (std::uint32_t i = 0; i < n; ++i) {
    const Entry& entry = ring_[head_];
    out[i] = entry.wc;
    entry.slots.free();
    if (++head_ == depth_) head_ = 0;
  }
  count_.store(count - n, std::memory_order_release);
  return n;
}

void CompletionQueueImpl::push(const WorkCompletion& wc, bool solicited, SlotsToFree slots) {
  bool fire = false;
  bool overflowed = false;
  {
    const os::SpinGuard lock(lock_);
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    assert(count <= depth_ && head_ < depth_);
    if (count == depth_) {
      overflowed = !overflowing_.exchange(true, std::memory_order_acq_rel);
    } else {
      std::uint32_t at = head_ + count;
      if (at >= depth_) at -= depth_;
      new (&ring_[at]) Entry{wc, slots};
      count_.store(count + 1, std::memory_order_release);
      const std::uint8_t armed = armed_.load(std::memory_order_relaxed);
      if (armed != kNotArmed && (armed == kArmedNext || solicited)) {
        armed_.store(kNotArmed, std::memory_order_relaxed);
        fire = true;
      }
    }
  }
  assert(!fire || channel_ != nullptr);  // only one with a channel can be armed
  if (fire) channel_->queue_event(*this);
  if (overflowed) overflow();
}

void CompletionQueueImpl::forget(std::uint32_t qp_num) {
  const os::SpinGuard lock(lock_);
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  assert(count <= depth_);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Entry& entry = ring_[(std::uint64_t{head_} + i) % depth_];
    if (entry.wc.qp_num == qp_num) continue;
    ring_[(std::uint64_t{head_} + kept++) % depth_] = entry;
  }
  count_.store(kept, std::memory_order_release);
}

// Hurts this CQ's QPs only. They are failed from the background thread: this one is inside a
// stream.
void CompletionQueueImpl::overflow() {
  const Status told = device_->engine().post([weak = weak_from_this()] {
    if (const auto cq = weak.lock()) cq->fail_users();
  });
  if (!told) {  // the next completion for which there is no room tries again
    overflowing_.store(false, std::memory_order_release);
    return;
  }
  if (overflowed_.exchange(true, std::memory_order_acq_rel)) return;  // the program knows
  AsyncEvent event;
  event.type = AsyncEventType::kCqError;
  event.cq = weak_from_this();
  event.object = static_cast<const CompletionQueue*>(this);
  device_->raise(std::move(event));
}

void CompletionQueueImpl::fail_users() {
  overflowing_.store(false, std::memory_order_release);  // from here on, whoever lacks room says so
  std::vector<std::shared_ptr<CqUser>> users;
  {
    const os::MutexLock lock(users_mutex_);
    for (const auto& [key, user] : users_) {
      if (auto held = user.first.lock()) users.push_back(std::move(held));
    }
  }
  for (const auto& qp : users) qp->cq_overflowed();
}

Status CompletionQueueImpl::arm(Arm what) {
  if (channel_ == nullptr) return fail(Error::kBadState);
  if (!device_->usable()) return fail(Error::kBadState);
  {
    const os::SpinGuard lock(lock_);
    const std::uint8_t armed = armed_.load(std::memory_order_relaxed);
    // Armed for any completion is more than armed for solicited ones.
    if (armed != kArmedNext) {
      armed_.store(what == Arm::kNext ? kArmedNext : kArmedSolicited, std::memory_order_relaxed);
    }
  }
  if (has_readers_.load(std::memory_order_relaxed)) {
    each_reader(&DatagramReader::hand_over);
  }
  // The caller may be about to sleep in poll(2), where it runs nothing. A caller that sleeps in
  // wait() takes the lanes over there.
  for (progress::Shard* shard : shards_.all()) {
    progress::ShardOwner& owner = shard->owner();
    if (!channel_->is_slept_on() || owner.was_abandoned()) {
      owner.give();
      shard->settle();
    } else if (shard->posts_wait()) {
      shard->settle();
    }
  }
  return {};
}

Status CompletionQueueImpl::resize(std::uint32_t depth) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (depth == 0 || depth > limits::kCompletionsPerQueue) return fail(Error::kInvalidArgument);
  const os::SpinGuard lock(lock_);
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (depth < count) return fail(Error::kInvalidArgument);
  std::unique_ptr<Entry[], FreeDeleter> old = std::move(ring_);
  const std::uint32_t old_depth = depth_;
  if (!allocate(room_for(depth))) {
    ring_ = std::move(old);
    return fail(Error::kNoMemory);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    new (&ring_[i]) Entry(old[(head_ + i) % old_depth]);
  }
  head_ = 0;
  return {};
}

void CompletionQueueImpl::ack_events(std::uint32_t count) {
  if (count == 0) return;
  const os::MutexLock lock(ack_mutex_);
  unacked_.fetch_sub(count, std::memory_order_acq_rel);
  acked_.notify_all();
}

void CompletionQueueImpl::wait_for_acks() {
  const os::NoCancel guard;
  // Else another thread could take one behind the wait, of a CQ that is about to go.
  if (channel_ != nullptr) channel_->retire(*this);
  const os::MutexLock lock(ack_mutex_);
  while (unacked_.load(std::memory_order_acquire) != 0) acked_.wait(ack_mutex_);
}

// --- queue pairs ---

void CompletionQueueImpl::add_user(const std::shared_ptr<CqUser>& qp) {
  assert(qp != nullptr);
  const os::MutexLock lock(users_mutex_);
  auto& user = users_[qp.get()];
  user.first = qp;
  ++user.second;
  user_count_.fetch_add(1, std::memory_order_acq_rel);
}

void CompletionQueueImpl::remove_user(const CqUser* qp) {
  const os::MutexLock lock(users_mutex_);
  const auto user = users_.find(qp);
  if (user == users_.end()) return;
  assert(user->second.second > 0 && user_count_.load(std::memory_order_relaxed) > 0);
  if (--user->second.second == 0) users_.erase(user);
  user_count_.fetch_sub(1, std::memory_order_acq_rel);
}

void CompletionQueueImpl::add_reader(std::weak_ptr<DatagramReader> reader) {
  const os::MutexLock lock(users_mutex_);
  readers_.push_back(std::move(reader));
  has_readers_.store(true, std::memory_order_relaxed);
}

// Those that live; the others are forgotten.
void CompletionQueueImpl::each_reader(void (DatagramReader::*call)()) {
  for (std::size_t i = 0;;) {
    std::shared_ptr<DatagramReader> reader;
    {
      const os::MutexLock lock(users_mutex_);
      if (i >= readers_.size()) break;
      reader = readers_[i].lock();
      if (reader == nullptr) {
        readers_.erase(readers_.begin() + static_cast<std::ptrdiff_t>(i));
        has_readers_.store(!readers_.empty(), std::memory_order_relaxed);
        continue;
      }
    }
    ((*reader).*call)();
    ++i;
  }
}

// A program that waits for its sends while it has no sends outstanding would sleep forever. It
// waits for something that makes no completion: a peer's Write into its memory.
void CompletionQueueImpl::wake_idle() {
  if (!armed()) return;
  {
    const os::SpinGuard lock(lock_);
    if (count_.load(std::memory_order_relaxed) != 0) return;
    if (armed_.load(std::memory_order_relaxed) == kNotArmed) return;
    armed_.store(kNotArmed, std::memory_order_relaxed);
  }
  assert(channel_ != nullptr);
  channel_->queue_event(*this);
}

}  // namespace weft::verbs
