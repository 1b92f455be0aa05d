#include "exs/core/exs_event_queue.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <new>

#include "os/event_fd.h"
#include "os/lock.h"

namespace weft::exs {

EventQueue::EventQueue(std::size_t depth)
    : ring_(std::bit_ceil(std::clamp<std::size_t>(depth, 16, 65536))),
      depth_(depth),
      room_(ring_.size()) {}

EventQueue::~EventQueue() {
  assert(sleepers_.empty() && users_.load(std::memory_order_relaxed) == 0);
}

void EventQueue::grow() {
  std::vector<exs_event_t> larger(ring_.size() * 2);
  const std::size_t count = waiting_.load(std::memory_order_relaxed);
  assert(count <= ring_.size());
  for (std::size_t i = 0; i < count; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
  ring_ = std::move(larger);
  head_ = 0;
  room_.store(ring_.size(), std::memory_order_relaxed);
}

void EventQueue::make_room() try {
  const os::MutexLock lock(mutex_);
  while (ring_.size() < users_.load(std::memory_order_relaxed) + waiting()) grow();
} catch (const std::bad_alloc&) {
  detach();
  throw;
}

void EventQueue::push(const exs_event_t& event) { append(event, false); }

void EventQueue::complete(const exs_event_t& event) { append(event, true); }

void EventQueue::append(const exs_event_t& event, bool ends_operation) {
  exs_signal_t signal{};
  {
    const os::MutexLock lock(mutex_);
    const std::size_t count = waiting_.load(std::memory_order_relaxed);
    if (count == ring_.size()) grow();
    assert(head_ < ring_.size() && count < ring_.size());
    ring_[(head_ + count) & (ring_.size() - 1)] = event;
    waiting_.store(count + 1, std::memory_order_release);
    if (ends_operation) detach();  // behind that: whoever counts both counts too many for a moment
    for (const Sleeper* sleeper : sleepers_) {
      if (count + 1 >= sleeper->need) os::raise_event(sleeper->fd);
    }
    if (count == 0) {
      if (readable_) os::raise_event(readable_.get());
      signal = signal_;
    }
  }
  if (signal.enable == EXS_SIG_ENABLE) ::sigqueue(::getpid(), signal.signo, signal.value);
}

std::size_t EventQueue::pop(exs_event_t* out, std::size_t count) {
  if (waiting() == 0) return 0;
  const os::MutexLock lock(mutex_);
  const std::size_t there = waiting_.load(std::memory_order_relaxed);
  const std::size_t taken = std::min(there, count);
  for (std::size_t i = 0; i < taken; ++i) out[i] = ring_[(head_ + i) & (ring_.size() - 1)];
  head_ = (head_ + taken) & (ring_.size() - 1);
  waiting_.store(there - taken, std::memory_order_release);
  if (taken == there && taken != 0 && readable_) (void)os::lower_event(readable_.get());
  return taken;
}

bool EventQueue::busy() const {
  const os::MutexLock lock(mutex_);
  return users_.load(std::memory_order_acquire) != 0;
}

void EventQueue::retire() {
  const os::MutexLock lock(mutex_);
  retired_.store(true, std::memory_order_release);
  for (const Sleeper* sleeper : sleepers_) os::raise_event(sleeper->fd);
}

bool EventQueue::enter(Sleeper& sleeper) {
  assert(sleeper.need != 0);
  const os::MutexLock lock(mutex_);
  if (waiting_.load(std::memory_order_relaxed) >= sleeper.need || retired()) return false;
  sleepers_.push_back(&sleeper);
  return true;
}

void EventQueue::leave(Sleeper& sleeper) {
  const os::MutexLock lock(mutex_);
  [[maybe_unused]] const std::size_t entered = std::erase(sleepers_, &sleeper);
  assert(entered == 1);
  (void)os::lower_event(sleeper.fd);
}

int EventQueue::readable_fd() {
  const os::MutexLock lock(mutex_);
  if (!readable_) {
    os::Fd fd = os::make_event();
    if (!fd) return -1;
    if (waiting_.load(std::memory_order_relaxed) != 0) os::raise_event(fd.get());
    readable_ = std::move(fd);
    watched_.store(true, std::memory_order_relaxed);
  }
  return readable_.get();
}

void EventQueue::set_signal(const exs_signal_t& signal) {
  const os::MutexLock lock(mutex_);
  signal_ = signal;
}

exs_signal_t EventQueue::signal() const {
  const os::MutexLock lock(mutex_);
  return signal_;
}

void EventQueue::set_depth(std::size_t depth) {
  const os::MutexLock lock(mutex_);
  depth_ = depth;
  while (ring_.size() < std::min<std::size_t>(depth, 65536)) grow();
}

std::size_t EventQueue::depth() const {
  const os::MutexLock lock(mutex_);
  return depth_;
}

}  // namespace weft::exs
