#include "verbs/completion_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <weft/system_error.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <iterator>
#include <new>
#include <span>
#include <utility>

#include "os/clock.h"
#include "os/epoll.h"
#include "os/log.h"
#include "progress/give_way.h"
#include "verbs/device.h"

namespace weft::verbs {

namespace {
// The channel in whose wait() this thread is.
thread_local CompletionChannelImpl* t_waits_on = nullptr;
// The number of the channel whose end_sleep() this thread called last: until its begin_sleep() the
// thread looks by itself.
thread_local std::uint64_t t_drives = 0;

std::atomic<std::uint64_t> g_channels{0};

// A descriptor that blocked once is taken to block for as long as a wait has lasted this long: to
// ask at each wait is one system call more for each message.
constexpr Duration kUnasked{10'000'000};
}  // namespace

// While a thread runs the shards in wait(), an event that it queues itself is for itself: it takes
// one before it sleeps or returns. What is left then is shown to others.
class CompletionChannelImpl::TakingTurn {
 public:
  explicit TakingTurn(CompletionChannelImpl& channel) noexcept
      : before_(std::exchange(t_waits_on, &channel)) {}
  ~TakingTurn() {
    assert(t_waits_on != nullptr);
    t_waits_on->events_->show();
    t_waits_on = before_;
  }
  TakingTurn(const TakingTurn&) = delete;
  TakingTurn& operator=(const TakingTurn&) = delete;

 private:
  CompletionChannelImpl* const before_;
};

// A thread that sleeps in wait() is counted, also if it is cancelled there.
class CompletionChannelImpl::Counted {
 public:
  explicit Counted(std::atomic<std::uint32_t>& sleepers) noexcept : sleepers_(sleepers) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Counted() {
    [[maybe_unused]] const std::uint32_t before = sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    assert(before > 0);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::uint32_t>& sleepers_;
};

// The same for each of the shards that the thread depends on.
class CompletionChannelImpl::Asleep {
 public:
  explicit Asleep(const Shards& shards) : shards_(shards) {
    for (const auto& shard : shards_) shard->owner().begin_sleep();
  }
  ~Asleep() {
    for (const auto& shard : shards_) shard->owner().end_sleep();
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  const Shards& shards_;
};

Result<std::shared_ptr<CompletionChannelImpl>> CompletionChannelImpl::create(
    std::shared_ptr<DeviceImpl> device) {
  auto events = os::SignalQueue<ChannelMember*>::create();
  if (!events) return fail(events.error());
  auto counted = ObjectCount::take(*device, ObjectKind::kChannel);
  if (!counted) return fail(counted.error());
  return std::shared_ptr<CompletionChannelImpl>(
      new CompletionChannelImpl(std::move(device), std::move(*counted), std::move(*events)));
}

CompletionChannelImpl::CompletionChannelImpl(
    std::shared_ptr<DeviceImpl> device, ObjectCount counted,
    std::unique_ptr<os::SignalQueue<ChannelMember*>> events)
    : device_(std::move(device)),
      counted_(std::move(counted)),
      events_(std::move(events)),
      number_(++g_channels) {}

std::size_t CompletionChannelImpl::users() const {
  const os::MutexLock lock(mutex_);
  return members_.size();
}

void CompletionChannelImpl::add(ChannelMember& cq) {
  const os::MutexLock lock(mutex_);
  members_.insert(&cq);
  try {
    events_->reserve();
  } catch (...) {
    members_.erase(&cq);
    throw;
  }
}

void CompletionChannelImpl::remove(ChannelMember& cq) {
  {
    const os::MutexLock lock(mutex_);
    if (members_.erase(&cq) != 0) events_->unreserve();
    remove_shards(cq.shards().all());
  }
  retire(cq);
}

void CompletionChannelImpl::retire(ChannelMember& cq) {
  cq.mark_retired();  // before the queue is locked: what is queued later has seen it
  (void)events_->take_if([&](ChannelMember* queued) { return queued == &cq; });
}

void CompletionChannelImpl::add_shard(const std::shared_ptr<progress::Shard>& shard) {
  const os::MutexLock lock(mutex_);
  const auto [feeds, is_new] = feeds_.try_emplace(shard.get(), 0);
  // It is in the list already where it was kept for want of memory.
  if (is_new && !std::ranges::binary_search(*shards_, shard)) {
    try {
      auto more = std::make_shared<Shards>();
      more->reserve(shards_->size() + 1);
      *more = *shards_;
      more->insert(std::ranges::upper_bound(*more, shard), shard);
      shards_ = std::move(more);
    } catch (...) {
      feeds_.erase(feeds);
      throw;
    }
    watch_locked(shard->epoll());
  }
  ++feeds->second;
}

void CompletionChannelImpl::remove_shard(progress::Shard* shard) noexcept {
  const os::MutexLock lock(mutex_);
  remove_shards({&shard, 1});
}

// Shards that are no longer wanted leave sleep_fd_ by themselves, when their descriptor is closed;
// until then they wake a sleeper for nothing at worst. So does one for which there is no memory to
// take it out of the list.
void CompletionChannelImpl::remove_shards(std::span<progress::Shard* const> gone) noexcept {
  bool any = false;
  for (const progress::Shard* const shard : gone) {
    const auto feeds = feeds_.find(shard);
    assert(feeds == feeds_.end() || feeds->second > 0);
    if (feeds == feeds_.end() || --feeds->second != 0) continue;
    feeds_.erase(feeds);
    any = true;
  }
  if (!any) return;
  try {
    auto left = std::make_shared<Shards>();
    std::ranges::copy_if(*shards_, std::back_inserter(*left),
                         [this](const auto& shard)
                             WEFT_NOT_ANALYZED { return feeds_.contains(shard.get()); });
    shards_ = std::move(left);
  } catch (const std::bad_alloc&) {
    os::log(LogLevel::kDebug, "a completion channel keeps a shard for want of memory");
  }
}

// Where there is no room for it, the background looks after it, and tells by fd().
void CompletionChannelImpl::watch_locked(int fd) const {
  if (!sleep_fd_) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  (void)epoll_ctl(sleep_fd_.get(), EPOLL_CTL_ADD, fd, &event);
}

std::shared_ptr<const CompletionChannelImpl::Shards> CompletionChannelImpl::shards() const {
  const os::MutexLock lock(mutex_);
  return shards_;
}

void CompletionChannelImpl::queue_event(ChannelMember& cq) {
  const bool shown = t_waits_on != this && t_drives != number_;
  // A program that has not taken an event of this CQ yet finds all completions behind it.
  events_->push_distinct(&cq, shown, [&] { return !cq.is_retired(); });
}

ChannelMember* CompletionChannelImpl::take() {
  // Counted before anybody else can ask: whoever destroys the CQ waits for this event.
  const auto cq = events_->try_pop([](ChannelMember* taken) { taken->event_taken(); });
  return cq ? *cq : nullptr;
}

// --- waiting ---

Result<CompletionQueue*> CompletionChannelImpl::wait(
    std::optional<std::chrono::nanoseconds> timeout) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (ChannelMember* cq = take()) return cq;
  Limit limit{timeout ? os::now() + *timeout : Instant::never(), false};
  if (!timeout && !blocks_.load(std::memory_order_relaxed)) {
    // The caller empties the channel before it sleeps in poll(2): the lanes stay where they are.
    if (!ask_whether_it_blocks()) return fail(Error::kTimedOut);
    limit.blocks = true;
  }
  // So does one that waits for no time. Lanes that callers keep get a look.
  if (timeout && timeout->count() <= 0) {
    const auto shards = this->shards();  // a CQ may come or go meanwhile
    for (const auto& shard : *shards) {
      if (shard->owner().is_callers()) (void)shard->poll();
    }
    if (ChannelMember* cq = take()) return cq;
    return fail(Error::kTimedOut);
  }
  if (!callers_drive()) return wait_for_others(limit);
  const Counted counted(sleepers_);
  waits_.store(true, std::memory_order_relaxed);
  const TakingTurn turn(*this);
  if (ChannelMember* cq = spin(limit.until)) return cq;
  return drive_and_sleep(limit);
}

bool CompletionChannelImpl::ask_whether_it_blocks() {
  const bool blocks = (fcntl(fd(), F_GETFL) & O_NONBLOCK) == 0;
  blocks_.store(blocks, std::memory_order_relaxed);
  return blocks;
}

bool CompletionChannelImpl::callers_drive() const {
  return device_->config().progress != ProgressMode::kThread;
}

// Another thread may have been quicker to take the event.
Result<CompletionQueue*> CompletionChannelImpl::wait_for_others(Limit limit) {
  while (true) {
    if (const Status woken = sleep(limit, {}); !woken) return fail(woken.error());
    if (ChannelMember* cq = take()) return cq;
    if (!limit.until.is_never() && os::now() >= limit.until) return fail(Error::kTimedOut);
  }
}

// A peer that answers at once is not worth a sleep, where it has a core of its own.
ChannelMember* CompletionChannelImpl::spin(Instant until) {
  if (device_->config().spin.count() == 0 || device_->cores() == 1) return nullptr;
  const Instant end = std::min(until, os::now() + device_->config().spin);
  const auto shards = this->shards();
  do {
    bool moved = false;
    for (const auto& shard : *shards) moved |= shard->poll();
    if (ChannelMember* cq = take()) return cq;
    if (!moved) {
      for (const auto& shard : *shards) shard->owner().note_vain_poll();
      progress::give_way(*device_, *shards);
    }
  } while (os::now() < end);
  return nullptr;
}

void CompletionChannelImpl::wake(const Shards& shards) {
  for (const auto& shard : shards) shard->make_epoll_readable();
}

// Before each sleep every shard is asked to settle: what it knows of is done, so that all that
// comes later is reported by its epoll. One that another thread runs just now has been told of the
// sleeper, and is settled, or reports that it is not, when that thread leaves it.
Result<CompletionQueue*> CompletionChannelImpl::drive_and_sleep(Limit limit) {
  while (true) {
    const auto shards = this->shards();
    const Asleep asleep(*shards);
    bool more = false;
    for (const auto& shard : *shards) more |= shard->run(progress::Look::kSettle).left;
    ChannelMember* cq = take();
    std::optional<Error> why;
    if (cq == nullptr && !more) {
      if (const Status woken = sleep(limit, *shards); !woken) why = woken.error();
      cq = take();
      sleeps_next_.store(true, std::memory_order_relaxed);
    }
    // Another thread may sleep on over what this one leaves.
    if (more && cq != nullptr) wake(*shards);
    if (cq != nullptr) return cq;
    if (why) return fail(*why);
    const bool over = !limit.until.is_never() && os::now() >= limit.until;
    if (more && over) return fail(Error::kTimedOut);
  }
}

int CompletionChannelImpl::sleep_fd() const {
  if (!callers_drive()) return fd();
  const os::MutexLock lock(mutex_);
  if (!sleep_fd_) {
    sleep_fd_ = os::Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!sleep_fd_) return fd();
    watch_locked(fd());
    for (const auto& shard : *shards_) watch_locked(shard->epoll());
  }
  return sleep_fd_.get();
}

bool CompletionChannelImpl::begin_sleep() {
  if (!device_->usable()) return true;
  if (!callers_drive()) return events_->size() == 0;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  waits_.store(true, std::memory_order_relaxed);
  t_drives = number_;
  slept_on_ = shards();
  bool more = false;
  for (const auto& shard : *slept_on_) shard->owner().begin_sleep();
  for (const auto& shard : *slept_on_) more |= shard->run(progress::Look::kSettle).left;
  if (!more && events_->size() == 0) {
    t_drives = 0;
    return true;
  }
  if (more) wake(*slept_on_);
  leave_sleep();
  return false;
}

void CompletionChannelImpl::end_sleep() {
  if (slept_on_ == nullptr || !device_->usable()) return;
  t_drives = number_;
  for (const auto& shard : *slept_on_) shard->run_for_others();
  leave_sleep();
}

void CompletionChannelImpl::leave_sleep() {
  assert(slept_on_ != nullptr);
  for (const auto& shard : *slept_on_) shard->owner().end_sleep();
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  slept_on_.reset();
}

// Consumes nothing; then runs the shards that report something.
Status CompletionChannelImpl::sleep(Limit& limit, const Shards& shards) {
  const bool for_ever = limit.until.is_never();
  Duration most = limit.blocks ? Duration{-1} : kUnasked;
  if (!for_ever) most = std::max(limit.until - os::now(), Duration{0});
  std::array<pollfd, 8> few;
  std::vector<pollfd> many;
  if (shards.size() >= few.size()) many.resize(shards.size() + 1);
  const std::span<pollfd> all =
      many.empty() ? std::span(few).first(shards.size() + 1) : std::span<pollfd>(many);
  assert(all.size() == shards.size() + 1);
  all.front() = {events_->fd(), POLLIN, 0};
  for (std::size_t i = 0; i < shards.size(); ++i) all[i + 1] = {shards[i]->epoll(), POLLIN, 0};
  const int n = os::poll_sleep(all, most);
  if (n == 0) {
    limit.blocks = for_ever && ask_whether_it_blocks();
    if (!limit.blocks) return fail(Error::kTimedOut);
  }
  if (n < 0) return fail(errno == EINTR ? Error::kAborted : system_error(errno));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (all[i + 1].revents != 0) shards[i]->run_for_others();
  }
  return {};
}

}  // namespace weft::verbs
