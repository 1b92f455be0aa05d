#include "verbs/channel.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "io/clock.h"
#include "verbs/cq.h"
#include "verbs/device.h"
#include "verbs/progress.h"

namespace weft::verbs {

Result<std::shared_ptr<CompletionChannelImpl>> CompletionChannelImpl::create(
    std::shared_ptr<DeviceImpl> device) {
  auto events = io::Signal<CompletionQueueImpl*>::create();
  if (!events) return fail(events.error());
  io::Fd sleep_fd(epoll_create1(EPOLL_CLOEXEC));
  if (!sleep_fd) return fail(Error::kSystem);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = (*events)->fd();
  if (epoll_ctl(sleep_fd.get(), EPOLL_CTL_ADD, event.data.fd, &event) != 0) {
    return fail(Error::kSystem);
  }
  if (auto taken = device->acquire(ObjectKind::kChannel); !taken) return fail(taken.error());
  return std::shared_ptr<CompletionChannelImpl>(
      new CompletionChannelImpl(std::move(device), std::move(*events), std::move(sleep_fd)));
}

CompletionChannelImpl::CompletionChannelImpl(
    std::shared_ptr<DeviceImpl> device, std::unique_ptr<io::Signal<CompletionQueueImpl*>> events,
    io::Fd sleep_fd)
    : device_(std::move(device)), events_(std::move(events)), sleep_fd_(std::move(sleep_fd)) {}

CompletionChannelImpl::~CompletionChannelImpl() { device_->release(ObjectKind::kChannel); }

std::size_t CompletionChannelImpl::users() const {
  const std::lock_guard lock(members_mutex_);
  return members_.size();
}

void CompletionChannelImpl::add(CompletionQueueImpl& cq) {
  const std::lock_guard lock(members_mutex_);
  members_.push_back(&cq);
}

void CompletionChannelImpl::remove(CompletionQueueImpl& cq) {
  {
    const std::lock_guard lock(members_mutex_);
    std::erase(members_, &cq);
  }
  (void)events_->take_if([&](CompletionQueueImpl* queued) { return queued == &cq; });
}

void CompletionChannelImpl::notify(CompletionQueueImpl& cq) { events_->push(&cq); }

void CompletionChannelImpl::watch(int socket) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.fd = socket;
  if (epoll_ctl(sleep_fd_.get(), EPOLL_CTL_ADD, socket, &event) != 0 && errno == EEXIST) {
    // Asks anew what is ready: an edge may have been seen while nobody drove the connection.
    (void)epoll_ctl(sleep_fd_.get(), EPOLL_CTL_MOD, socket, &event);
  }
}

void CompletionChannelImpl::unwatch(int socket) {
  (void)epoll_ctl(sleep_fd_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

CompletionQueueImpl* CompletionChannelImpl::take() {
  const auto cq = events_->try_pop();
  if (!cq) return nullptr;
  (*cq)->event_taken();
  return *cq;
}

bool CompletionChannelImpl::drive() {
  const std::lock_guard lock(members_mutex_);
  bool more = false;
  for (CompletionQueueImpl* cq : members_) more |= cq->drive();
  return more;
}

void CompletionChannelImpl::adopt() {
  const std::lock_guard lock(members_mutex_);
  for (CompletionQueueImpl* cq : members_) cq->adopt_members();
}

Result<CompletionQueue*> CompletionChannelImpl::wait(
    std::optional<std::chrono::nanoseconds> timeout) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (CompletionQueueImpl* cq = take()) return cq;
  Instant until = Instant::never();
  if (timeout) {
    until = io::now() + *timeout;
  } else if ((fcntl(fd(), F_GETFL) & O_NONBLOCK) != 0) {
    until = Instant{0};
  }
  if (device_->config().progress == ProgressMode::kThread) {
    // Another thread may have been quicker to take the event.
    while (true) {
      if (auto woken = sleep(until); !woken) return fail(woken.error());
      if (CompletionQueueImpl* cq = take()) return cq;
      if (!until.is_never() && io::now() >= until) return fail(Error::kTimedOut);
    }
  }
  // Counted as a sleeper from here on: the background thread leaves adopted connections alone.
  sleepers_.fetch_add(1, std::memory_order_acq_rel);
  if (until > io::now()) waits_.store(true, std::memory_order_relaxed);
  adopt();
  CompletionQueueImpl* cq = spin(until);
  std::optional<Error> why;
  while (cq == nullptr && !why) {
    // Wake-ups are edge-triggered: whatever is left unread now would be slept over.
    bool more = true;
    while (more && cq == nullptr) {
      more = drive() && io::now() < until;
      cq = take();
    }
    if (cq != nullptr) break;
    if (const Status woken = sleep(until); !woken) why = woken.error();
  }
  if (cq == nullptr) cq = take();
  sleepers_.fetch_sub(1, std::memory_order_acq_rel);
  device_->progress().wake();
  if (cq != nullptr) return cq;
  return fail(*why);
}

// A peer that answers at once is not worth a sleep.
CompletionQueueImpl* CompletionChannelImpl::spin(Instant until) {
  if (device_->config().spin.count() == 0) return nullptr;
  const Instant end = std::min(until, io::now() + device_->config().spin);
  do {
    (void)drive();
    if (CompletionQueueImpl* cq = take()) return cq;
  } while (io::now() < end);
  return nullptr;
}

Status CompletionChannelImpl::sleep(Instant until) {
  timespec wait{};
  timespec* limit = nullptr;
  if (!until.is_never()) {
    const std::int64_t left = std::max<std::int64_t>(0, (until - io::now()).count());
    wait.tv_sec = left / 1'000'000'000;
    wait.tv_nsec = left % 1'000'000'000;
    limit = &wait;
  }
  epoll_event events[16];
  const int n = epoll_pwait2(sleep_fd_.get(), events, 16, limit, nullptr);
  if (n > 0) return {};
  if (n == 0) return fail(Error::kTimedOut);
  return fail(errno == EINTR ? Error::kAborted : Error::kSystem);
}

}  // namespace weft::verbs
