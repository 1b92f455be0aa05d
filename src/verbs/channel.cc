#include "verbs/channel.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <weft/system_error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "io/clock.h"
#include "io/epoll.h"
#include "verbs/cq.h"
#include "verbs/device.h"
#include "verbs/poller.h"

namespace weft::verbs {

namespace {
// The channel in whose wait() this thread is.
thread_local CompletionChannelImpl* t_waits_on = nullptr;
// The number of the channel whose end_sleep() this thread called last: until its begin_sleep() the
// thread looks by itself.
thread_local std::uint64_t t_drives = 0;

std::atomic<std::uint64_t> g_channels{0};
}  // namespace

// While a thread runs the pollers in wait(), an event that it queues itself is for itself: it takes
// one before it sleeps or returns. What is left then is shown to others.
class CompletionChannelImpl::TakingTurn {
 public:
  explicit TakingTurn(CompletionChannelImpl& channel) noexcept
      : before_(std::exchange(t_waits_on, &channel)) {}
  ~TakingTurn() {
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
  ~Counted() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::uint32_t>& sleepers_;
};

// The same for each of the pollers that the thread depends on.
class CompletionChannelImpl::Asleep {
 public:
  explicit Asleep(const Pollers& pollers) : pollers_(pollers) {
    for (const auto& poller : pollers_) poller->begin_sleep();
  }
  ~Asleep() {
    for (const auto& poller : pollers_) poller->end_sleep();
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  const Pollers& pollers_;
};

Result<std::shared_ptr<CompletionChannelImpl>> CompletionChannelImpl::create(
    std::shared_ptr<DeviceImpl> device) {
  auto events = io::Signal<CompletionQueueImpl*>::create();
  if (!events) return fail(events.error());
  io::Fd sleep_fd(epoll_create1(EPOLL_CLOEXEC));
  if (!sleep_fd) return fail(system_error(errno));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = (*events)->fd();
  if (epoll_ctl(sleep_fd.get(), EPOLL_CTL_ADD, event.data.fd, &event) != 0) {
    return fail(system_error(errno));
  }
  if (auto taken = device->acquire(ObjectKind::kChannel); !taken) return fail(taken.error());
  return std::shared_ptr<CompletionChannelImpl>(
      new CompletionChannelImpl(std::move(device), std::move(*events), std::move(sleep_fd)));
}

CompletionChannelImpl::CompletionChannelImpl(
    std::shared_ptr<DeviceImpl> device, std::unique_ptr<io::Signal<CompletionQueueImpl*>> events,
    io::Fd sleep_fd)
    : device_(std::move(device)),
      events_(std::move(events)),
      sleep_fd_(std::move(sleep_fd)),
      number_(++g_channels) {}

CompletionChannelImpl::~CompletionChannelImpl() { device_->release(ObjectKind::kChannel); }

std::size_t CompletionChannelImpl::users() const {
  const io::MutexLock lock(mutex_);
  return members_.size();
}

Status CompletionChannelImpl::add(CompletionQueueImpl& cq) {
  const io::MutexLock lock(mutex_);
  members_.push_back(&cq);
  const Status watched = refresh_locked();
  if (!watched) members_.pop_back();
  return watched;
}

void CompletionChannelImpl::remove(CompletionQueueImpl& cq) {
  {
    const io::MutexLock lock(mutex_);
    std::erase(members_, &cq);
    static_cast<void>(refresh_locked());
  }
  retire(cq);
}

void CompletionChannelImpl::retire(CompletionQueueImpl& cq) {
  cq.mark_retired();  // before the queue is locked: what is queued later has seen it
  (void)events_->take_if([&](CompletionQueueImpl* queued) { return queued == &cq; });
}

Status CompletionChannelImpl::refresh() {
  const io::MutexLock lock(mutex_);
  return refresh_locked();
}

// Pollers that are no longer wanted leave the epoll by themselves, when their descriptor is closed;
// until then they wake a sleeper for nothing at worst.
Status CompletionChannelImpl::refresh_locked() {
  auto pollers = std::make_shared<Pollers>();
  for (CompletionQueueImpl* cq : members_) {
    std::shared_ptr<Poller> poller = cq->poller().shared_from_this();
    if (std::ranges::find(*pollers, poller) != pollers->end()) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = poller->epoll();
    if (epoll_ctl(sleep_fd_.get(), EPOLL_CTL_ADD, poller->epoll(), &event) != 0 &&
        errno != EEXIST) {
      return fail(system_error(errno));
    }
    pollers->push_back(std::move(poller));
  }
  pollers_ = std::move(pollers);
  return {};
}

std::shared_ptr<const CompletionChannelImpl::Pollers> CompletionChannelImpl::pollers() const {
  const io::MutexLock lock(mutex_);
  return pollers_;
}

void CompletionChannelImpl::notify(CompletionQueueImpl& cq) {
  const bool shown = t_waits_on != this && t_drives != number_;
  events_->push_if(&cq, shown, [&] { return !cq.is_retired(); });
}

CompletionQueueImpl* CompletionChannelImpl::take() {
  // Counted before anybody else can ask: whoever destroys the CQ waits for this event.
  const auto cq = events_->try_pop([](CompletionQueueImpl* taken) { taken->event_taken(); });
  return cq ? *cq : nullptr;
}

// --- waiting ---

Result<CompletionQueue*> CompletionChannelImpl::wait(
    std::optional<std::chrono::nanoseconds> timeout) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (CompletionQueueImpl* cq = take()) return cq;
  Instant until = Instant::never();
  if (timeout) {
    until = io::now() + *timeout;
  } else if ((fcntl(fd(), F_GETFL) & O_NONBLOCK) != 0) {
    // The caller empties the channel before it sleeps in poll(2): the lanes stay where they are.
    return fail(Error::kTimedOut);
  }
  // So does one that waits for no time. Lanes that callers keep get a look.
  if (timeout && timeout->count() <= 0) {
    const auto pollers = this->pollers();  // a CQ may come or go meanwhile
    for (const auto& poller : *pollers) {
      if (poller->kept_by_callers()) poller->drive();
    }
    if (CompletionQueueImpl* cq = take()) return cq;
    return fail(Error::kTimedOut);
  }
  if (!callers_drive()) return wait_for_others(until);
  const Counted counted(sleepers_);
  waits_.store(true, std::memory_order_relaxed);
  const TakingTurn turn(*this);
  if (CompletionQueueImpl* cq = spin(until)) return cq;
  return drive_and_sleep(until);
}

bool CompletionChannelImpl::callers_drive() const {
  return device_->config().progress != ProgressMode::kThread;
}

// Another thread may have been quicker to take the event.
Result<CompletionQueue*> CompletionChannelImpl::wait_for_others(Instant until) {
  while (true) {
    if (const Status woken = sleep(until); !woken) return fail(woken.error());
    if (CompletionQueueImpl* cq = take()) return cq;
    if (!until.is_never() && io::now() >= until) return fail(Error::kTimedOut);
  }
}

// A peer that answers at once is not worth a sleep.
CompletionQueueImpl* CompletionChannelImpl::spin(Instant until) {
  if (device_->config().spin.count() == 0) return nullptr;
  const Instant end = std::min(until, io::now() + device_->config().spin);
  const auto pollers = this->pollers();
  do {
    bool moved = false;
    for (const auto& poller : *pollers) moved |= poller->drive();
    if (CompletionQueueImpl* cq = take()) return cq;
    if (!moved && !pollers->empty()) pollers->front()->nothing_found();
  } while (io::now() < end);
  return nullptr;
}

// Before each sleep every poller is asked to settle: what it knows of is done, so that all that
// comes later is reported by its epoll.
Result<CompletionQueue*> CompletionChannelImpl::drive_and_sleep(Instant until) {
  while (true) {
    const auto pollers = this->pollers();
    const Asleep asleep(*pollers);
    bool more = false;
    for (const auto& poller : *pollers) more |= poller->settle();
    CompletionQueueImpl* cq = take();
    std::optional<Error> why;
    if (cq == nullptr && !more) {
      if (const Status woken = sleep(until); !woken) {
        why = woken.error();
      } else {
        for (const auto& poller : *pollers) poller->look();
      }
      cq = take();
    }
    if (cq != nullptr) return cq;
    if (why) return fail(*why);
    if (more && !until.is_never() && io::now() >= until) return fail(Error::kTimedOut);
  }
}

int CompletionChannelImpl::sleep_fd() const { return callers_drive() ? sleep_fd_.get() : fd(); }

bool CompletionChannelImpl::begin_sleep() {
  if (!device_->usable()) return true;
  if (!callers_drive()) return events_->size() == 0;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  waits_.store(true, std::memory_order_relaxed);
  t_drives = number_;
  slept_on_ = pollers();
  bool more = false;
  for (const auto& poller : *slept_on_) poller->begin_sleep();
  for (const auto& poller : *slept_on_) more |= poller->settle();
  if (!more && events_->size() == 0) {
    t_drives = 0;
    return true;
  }
  leave_sleep();
  return false;
}

void CompletionChannelImpl::end_sleep() {
  if (slept_on_ == nullptr || !device_->usable()) return;
  t_drives = number_;
  for (const auto& poller : *slept_on_) poller->look();
  leave_sleep();
}

void CompletionChannelImpl::leave_sleep() {
  for (const auto& poller : *slept_on_) poller->end_sleep();
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  slept_on_.reset();
}

Status CompletionChannelImpl::sleep(Instant until) {
  Duration limit{-1};
  if (!until.is_never()) limit = std::max(until - io::now(), Duration{0});
  std::array<epoll_event, 16> events;
  const int n = io::epoll_sleep(sleep_fd_.get(), events, limit);
  if (n > 0) return {};
  if (n == 0) return fail(Error::kTimedOut);
  return fail(errno == EINTR ? Error::kAborted : system_error(errno));
}

}  // namespace weft::verbs
