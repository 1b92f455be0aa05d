#include "io/link_pump.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "os/clock.h"
#include "os/guarded.h"
#include "os/signals_blocked.h"

namespace weft::io {
namespace {

// The process ends, and something is under way: as long as it takes, and this.
constexpr Duration kGrace = std::chrono::seconds(1);

// `last`: null, or is moved to when the last of them is due.
bool is_under_way(const std::vector<std::weak_ptr<UnderWay>>& links, Instant* last) {
  bool out = false;
  for (const std::weak_ptr<UnderWay>& one : links) {
    const std::shared_ptr<UnderWay> link = one.lock();
    const std::optional<Instant> due = link != nullptr ? link->last_due() : std::nullopt;
    if (!due) continue;
    out = true;
    if (last != nullptr) *last = std::max(*last, *due);
  }
  return out;
}

}  // namespace

constinit std::atomic<LinkPump*> LinkPump::pump_{nullptr};

LinkPump& LinkPump::of_process() {
  LinkPump* known = pump_.load(std::memory_order_acquire);
  if (known != nullptr && known->process_ == getpid()) return *known;
  auto fresh = std::make_unique<LinkPump>();
  if (!pump_.compare_exchange_strong(known, fresh.get())) return *known;
  return *fresh.release();
}

void LinkPump::call(Instant when, Task task) {
  const os::MutexLock lock(mutex_);
  if (!running_) {
    os::start_thread([this] { run(); }).detach();
    running_ = true;
    static_cast<void>(std::atexit(drain_at_exit));
  }
  calls_.push({when, std::move(task)});
  changed_.notify_all();
}

void LinkPump::add(const std::shared_ptr<UnderWay>& link) {
  const os::MutexLock lock(mutex_);
  std::erase_if(links_, [](const std::weak_ptr<UnderWay>& one) { return one.expired(); });
  links_.emplace_back(link);
}

void LinkPump::run() {
  os::MutexLock lock(mutex_);
  for (;;) {
    in_task_ = false;
    changed_.notify_all();
    if (calls_.empty()) {
      changed_.wait(mutex_);
      continue;
    }
    const Duration left = calls_.top().when - os::now();
    if (left.count() > 0) {
      changed_.wait_for(mutex_, left);
      continue;
    }
    Task task = calls_.top().task;
    calls_.pop();
    in_task_ = true;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

void LinkPump::drain_at_exit() {
  LinkPump* const known = pump_.load(std::memory_order_acquire);
  if (known == nullptr || known->process_ != getpid()) return;
  static_cast<void>(os::guarded([&]() -> Status {
    known->drain();
    return {};
  }));
}

// Until all has left. A peer that takes nothing does not hold it up for ever, nor does a call whose
// link has nothing to send any more.
void LinkPump::drain() {
  os::MutexLock lock(mutex_);
  const std::vector<std::weak_ptr<UnderWay>> links = links_;
  lock.unlock();
  Instant end = os::now();
  static_cast<void>(is_under_way(links, &end));
  end = end + kGrace;
  for (bool more = true; more && os::now() < end;) {
    more = is_under_way(links, nullptr);
    lock.lock();
    more = more || in_task_ || (!calls_.empty() && calls_.top().when <= os::now());
    if (more) changed_.wait_for(mutex_, std::chrono::milliseconds(1));
    lock.unlock();
  }
}

}  // namespace weft::io
