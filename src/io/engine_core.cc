#include "io/engine_core.h"

#include <pthread.h>
#include <weft/system_error.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "os/clock.h"
#include "os/epoll.h"
#include "os/event_fd.h"
#include "os/guarded.h"
#include "os/signals_blocked.h"

namespace weft::io {

namespace {

constexpr int kEventsPerRound = 64;
constexpr std::uint64_t kWakeToken = ~std::uint64_t{0};
// Cancelled timers stay in the heap until they are this many and outnumber the live ones.
constexpr std::size_t kStaleTimersMin = 256;
// Before a callback that had no memory is called again.
constexpr std::chrono::milliseconds kPauseWithoutMemory{1};

std::uint64_t token(int fd, std::uint32_t generation) {
  return std::uint64_t{generation} << 32U | static_cast<std::uint32_t>(fd);
}

}  // namespace

Status EngineCore::init() {
  assert(!epoll_ && !wake_);
  epoll_ = os::Fd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = os::make_event();
  if (!epoll_ || !wake_) return fail(system_error(errno));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeToken;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return fail(system_error(errno));
  }
  return {};
}

Status EngineCore::start_locked() {
  if (stopping_) return fail(Error::kBadState);
  if (started_.load(std::memory_order_relaxed)) return {};
  assert(!thread_.joinable());
  try {
    thread_ = os::start_thread([core = shared_from_this()] { core->loop(); });
  } catch (const std::system_error& refused) {
    return fail(system_error(refused.code().value()));
  }
  pthread_setname_np(thread_.native_handle(), "weft");
  started_.store(true, std::memory_order_relaxed);
  return {};
}

void EngineCore::stop() {
  if (forked()) {
    epoll_.reset();
    wake_.reset();
    return;
  }
  std::thread thread;
  {
    const os::MutexLock lock(mutex_);
    assert(!stopping_);
    stopping_ = true;
    wake_locked();
    thread = std::move(thread_);
  }
  if (!thread.joinable()) return;
  if (on_thread()) {
    thread.detach();
  } else {
    const os::NoCancel guard;
    thread.join();
  }
}

void EngineCore::wake_locked() {
  if (!asleep_ || wake_sent_) return;
  wake_sent_ = true;
  os::raise_event(wake_.get());
}

// --- descriptors ---

Status EngineCore::add(int fd, std::uint32_t events, std::weak_ptr<Handler> handler) {
  assert(fd >= 0);
  const void* const whom = handler.lock().get();
  if (whom == nullptr) return fail(Error::kBadState);
  const os::MutexLock lock(mutex_);
  const auto index = static_cast<std::size_t>(fd);
  if (index < fds_.size() && fds_[index].whom != nullptr) return fail(Error::kBadState);
  if (auto started = start_locked(); !started) return started;
  if (index >= fds_.size()) fds_.resize(std::max(index + 1, fds_.size() * 2));
  const std::uint32_t generation = next_generation_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token(fd, generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail(system_error(errno));
  assert(index < fds_.size() && fds_[index].whom == nullptr);
  fds_[index] = {std::move(handler), whom, generation, events};
  return {};
}

Status EngineCore::modify(int fd, std::uint32_t events) {
  // The kernel is told under the lock: once it is let go of, the number may be another
  // descriptor's.
  const os::MutexLock lock(mutex_);
  const auto index = static_cast<std::size_t>(fd);
  if (fd < 0 || index >= fds_.size() || fds_[index].whom == nullptr) {
    return fail(Error::kNotFound);
  }
  epoll_event event{};
  event.events = events;
  event.data.u64 = token(fd, fds_[index].generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) return fail(system_error(errno));
  fds_[index].events = events;
  return {};
}

Status EngineCore::give(int fd, std::weak_ptr<Handler> handler) {
  const void* const whom = handler.lock().get();
  if (whom == nullptr) return fail(Error::kBadState);
  const os::MutexLock lock(mutex_);
  const auto index = static_cast<std::size_t>(fd);
  if (fd < 0 || index >= fds_.size() || fds_[index].whom == nullptr) {
    return fail(Error::kNotFound);
  }
  fds_[index].handler = std::move(handler);
  fds_[index].whom = whom;
  return {};
}

void EngineCore::forget(int fd, bool wait) {
  const os::MutexLock lock(mutex_);
  const auto index = static_cast<std::size_t>(fd);
  if (fd < 0 || index >= fds_.size() || fds_[index].whom == nullptr) return;
  const void* const whom = fds_[index].whom;
  forget_locked(fd);
  if (wait) settle_locked(whom);
}

void EngineCore::forget_locked(int fd) {
  assert(fd >= 0 && fds_.at(static_cast<std::size_t>(fd)).whom != nullptr);
  fds_[static_cast<std::size_t>(fd)] = {};
  epoll_event unused{};
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &unused);
}

void EngineCore::wait_for(const void* whom) {
  const os::MutexLock lock(mutex_);
  settle_locked(whom);
}

// Waits for the callback that runs now, not for later ones of the same object.
void EngineCore::settle_locked(const void* whom) {
  if (running_ != whom || on_thread()) return;
  const std::uint64_t mine = callbacks_;
  const os::NoCancel guard;
  ++waiters_;
  while (running_ == whom && callbacks_ == mine) settled_.wait(mutex_);
  assert(waiters_ != 0);
  --waiters_;
}

// False: it had no memory. The share that the callback had may be the last: it is let go without
// the lock.
template <class Call>
bool EngineCore::run_callback(std::shared_ptr<Handler> handler, Call&& call) {
  assert(on_thread() && running_ == nullptr && handler != nullptr);
  bool done = true;
  running_ = handler.get();
  ++callbacks_;
  mutex_.unlock();
  try {
    call(*handler);
  } catch (const std::bad_alloc&) {
    done = false;
  }
  handler.reset();
  mutex_.lock();
  running_ = nullptr;
  if (waiters_ != 0) settled_.notify_all();
  return done;
}

void EngineCore::wait_for_memory() {
  mutex_.unlock();
  std::this_thread::sleep_for(kPauseWithoutMemory);
  mutex_.lock();
}

// --- timers, tasks ---

TimerId EngineCore::schedule(Instant when, std::weak_ptr<Handler> handler) {
  const os::MutexLock lock(mutex_);
  if (!start_locked()) return 0;
  // Both have room before one of them has it.
  if (heap_.size() == heap_.capacity()) heap_.reserve(2 * heap_.size() + 1);
  const TimerId id = next_timer_++;
  assert(id != 0);
  timers_.emplace(id, std::move(handler));
  const bool earliest = heap_.empty() || when < heap_.front().when;
  heap_.push_back({when, id});
  std::push_heap(heap_.begin(), heap_.end());
  if (earliest) wake_locked();
  return id;
}

void EngineCore::cancel(TimerId id, bool wait) {
  const os::MutexLock lock(mutex_);
  const auto found = timers_.find(id);
  if (found == timers_.end()) {
    if (running_timer_ != id) return;
    running_timer_canceled_ = true;
    if (wait) settle_locked(running_);
    return;
  }
  timers_.erase(found);
  drop_stale_timers_locked();
}

void EngineCore::drop_stale_timers_locked() {
  assert(heap_.size() >= timers_.size());  // each timer has its place in the heap
  if (heap_.size() - timers_.size() < std::max(kStaleTimersMin, timers_.size())) return;
  std::erase_if(heap_,
                [this](const Due& d) WEFT_REQUIRES(mutex_) { return !timers_.contains(d.id); });
  std::make_heap(heap_.begin(), heap_.end());
}

Status EngineCore::post(std::function<void()> task) {
  const os::MutexLock lock(mutex_);
  if (auto started = start_locked(); !started) return started;
  tasks_.push_back(std::move(task));
  wake_locked();
  return {};
}

// --- the thread ---

void EngineCore::loop() {
  thread_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  std::array<epoll_event, kEventsPerRound> events;
  os::MutexLock lock(mutex_);
  while (!stopping_) {
    const Duration limit = sleep_time_locked();
    asleep_ = limit.count() != 0;
    lock.unlock();
    const int count = os::epoll_sleep(epoll_.get(), events, limit);
    lock.lock();
    asleep_ = false;
    if (limit.count() != 0) wakeups_.fetch_add(1, std::memory_order_relaxed);

    // Order: what the kernel reports, then what is due, then what others asked for.
    for (int i = 0; i < count && !stopping_; ++i) {
      dispatch(events[static_cast<std::size_t>(i)]);
    }
    run_timers();
    run_tasks();
  }
  // Those that nobody runs any more go without the lock.
  while (!tasks_.empty()) {
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task = nullptr;
    lock.lock();
  }
}

// 0: there is work; negative: sleep forever.
Duration EngineCore::sleep_time_locked() const {
  if (!tasks_.empty()) return Duration{0};
  if (heap_.empty()) return Duration{-1};
  return std::max(heap_.front().when - os::now(), Duration{0});
}

void EngineCore::dispatch(const epoll_event& event) {
  if (event.data.u64 == kWakeToken) {
    // A child that was made past the C library may have sent it.
    (void)os::lower_event(wake_.get());
    wake_sent_ = false;
    return;
  }
  const auto fd = static_cast<std::size_t>(event.data.u64 & 0xffffffffU);
  const auto generation = static_cast<std::uint32_t>(event.data.u64 >> 32U);
  // Removed meanwhile, perhaps by a callback of this very round.
  if (fd >= fds_.size() || fds_[fd].whom == nullptr || fds_[fd].generation != generation) return;
  std::shared_ptr<Handler> handler = fds_[fd].handler.lock();
  // Its destructor is about to remove it, if it does; until then nobody serves the descriptor.
  if (handler == nullptr) return forget_locked(static_cast<int>(fd));
  if (run_callback(std::move(handler), [&](Handler& h) { h.on_io(event.events); })) return;
  wait_for_memory();
  if (fds_[fd].whom == nullptr || fds_[fd].generation != generation) return;
  epoll_event again{};  // for one that is edge-triggered
  again.events = fds_[fd].events;
  again.data.u64 = event.data.u64;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, static_cast<int>(fd), &again);
}

void EngineCore::run_timers() {
  if (heap_.empty()) return;
  const Instant time = os::now();
  while (!stopping_ && !heap_.empty() && heap_.front().when <= time) {
    std::pop_heap(heap_.begin(), heap_.end());
    const TimerId id = heap_.back().id;
    heap_.pop_back();
    Timers::node_type timer = timers_.extract(id);
    if (timer.empty()) continue;
    std::shared_ptr<Handler> handler = timer.mapped().lock();
    if (handler == nullptr) continue;
    assert(running_timer_ == 0);
    running_timer_ = id;
    running_timer_canceled_ = false;
    const bool done = run_callback(std::move(handler), [&](Handler& h) { h.on_timer(id); });
    running_timer_ = 0;
    if (!done && !running_timer_canceled_) run_again_locked(std::move(timer));
  }
}

// Its node and its place in the heap were there before, so this needs memory only where others have
// been quick to take them.
void EngineCore::run_again_locked(Timers::node_type timer) {
  assert(!timer.empty() && !timers_.contains(timer.key()));
  const TimerId id = timer.key();
  static_cast<void>(os::guarded([&]() WEFT_NOT_ANALYZED -> Status {  // run at once, with the mutex
    heap_.push_back({os::now() + kPauseWithoutMemory, id});
    std::push_heap(heap_.begin(), heap_.end());
    timers_.insert(std::move(timer));  // without it the entry of the heap is a stale one
    return {};
  }));
}

void EngineCore::run_tasks() {
  // Those posted by tasks come in the next round, so that descriptors get their turn.
  for (std::size_t left = tasks_.size(); left != 0 && !stopping_ && !tasks_.empty(); --left) {
    // Its place stays, for a task that has no memory.
    std::function<void()> task = std::move(tasks_.front());
    bool done = true;
    mutex_.unlock();
    try {
      task();
      task = nullptr;
    } catch (const std::bad_alloc&) {
      done = false;
    }
    mutex_.lock();
    if (!done) {
      assert(!tasks_.empty());
      tasks_.front() = std::move(task);
      return wait_for_memory();
    }
    assert(!tasks_.empty());  // this thread alone takes them out
    tasks_.pop_front();
  }
}

}  // namespace weft::io
