#include "ibverbs/shaken.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ibverbs/errors.h"
#include "ibverbs/fork_child.h"
#include "ibverbs/shake_log.h"
#include "ibverbs/shaken_state.h"
#include "os/clock.h"
#include "os/say.h"
#include "os/signals_blocked.h"

namespace weft::ibverbs {

constinit const shake::Plan* shaking = nullptr;

namespace {

// A call that returns its error may leave in errno whatever another call left there.
constexpr std::array kErrors = {EPERM, EINTR, EAGAIN, EEXIST, ERANGE, ENOTTY, EPIPE};

Shaker* the_shaker = nullptr;

// The thread that rings doorbells is the parent's, and so are locks. Objects made from now on are
// as they are without --shake, and the calls of others go past what shakes them.
void stop_shaking() { shaking = nullptr; }

__attribute__((constructor)) void start_shaking() {
  const char* const wanted = std::getenv("WEFT_SHAKE");
  if (wanted == nullptr || wanted[0] == '\0') return;
  std::string why;
  const auto plan = shake::parse_plan(wanted, why);
  if (!plan) return os::say("weft: WEFT_SHAKE: %s\n", why.c_str());
  on_fork_child(stop_shaking);
  the_shaker = new Shaker(*plan);
  shaking = &the_shaker->plan();
  scrambles_errno = shakes(shake::Effect::kErrno);
  start_shake_log();
}

template <class T>
std::vector<std::shared_ptr<T>> living(std::vector<std::weak_ptr<T>>& list) {
  std::erase_if(list, [](const std::weak_ptr<T>& one) { return one.expired(); });
  std::vector<std::shared_ptr<T>> out;
  for (const auto& one : list) {
    if (auto held = one.lock()) out.push_back(std::move(held));
  }
  return out;
}

}  // namespace

Shaker& shaker() { return *the_shaker; }

// The entries are there before a request can complete.
Posted PostedReceives::post(std::span<const RecvWr> wrs, const Call& call) {
  const os::MutexLock one_at_a_time(posting_);
  std::size_t count = wrs.size();
  {
    const os::MutexLock lock(mutex_);
    const std::size_t here = all_known_ ? ledger_.size() : waiting_();
    const std::size_t room = depth_ - std::min<std::size_t>(depth_, here);
    if (shakes(shake::Effect::kSizes)) count = std::min(count, room);
    for (const RecvWr& wr : wrs.first(count)) ledger_.add({wr.wr_id, true, memory_of(wr.sges)});
  }
  Posted posted = call(wrs.first(count));
  if (posted.count == count && count < wrs.size()) posted.error = Error::kNoSpace;
  const os::MutexLock lock(mutex_);
  for (; count > posted.count; --count) ledger_.drop_last();
  return posted;
}

std::optional<shake::Ledger::Entry> PostedReceives::received(std::uint64_t wr_id) {
  const os::MutexLock lock(mutex_);
  return ledger_.received(wr_id, waiting_ != nullptr);
}

bool PostedReceives::may_use(const Sge& octets) {
  const os::MutexLock lock(mutex_);
  return ledger_.uses(octets);
}

void PostedReceives::emptied() {
  const os::MutexLock lock(mutex_);
  if (waiting_ == nullptr) return ledger_.clear();
  all_known_ = false;
}

std::uint64_t Shaker::value() {
  const os::MutexLock lock(mutex_);
  return values_.next();
}

void Shaker::add(std::uint32_t number, const std::shared_ptr<CountsCompletions>& qp) {
  const os::MutexLock lock(mutex_);
  qps_[number] = qp;
}

void Shaker::remove(std::uint32_t number) {
  const os::MutexLock lock(mutex_);
  qps_.erase(number);
}

void Shaker::add(const std::shared_ptr<HoldsCompletions>& cq) {
  const os::MutexLock lock(mutex_);
  cqs_.push_back(cq);
}

void Shaker::add(const std::shared_ptr<PostedReceives>& receives) {
  const os::MutexLock lock(mutex_);
  receives_.push_back(receives);
}

std::shared_ptr<CountsCompletions> Shaker::find(std::uint32_t number) {
  const os::MutexLock lock(mutex_);
  const auto at = qps_.find(number);
  return at != qps_.end() ? at->second.lock() : nullptr;
}

std::vector<std::shared_ptr<HoldsCompletions>> Shaker::queues() {
  const os::MutexLock lock(mutex_);
  return living(cqs_);
}

std::vector<std::uint32_t> Shaker::qp_numbers() {
  const os::MutexLock lock(mutex_);
  std::vector<std::uint32_t> out;
  for (const auto& [number, qp] : qps_) out.push_back(number);
  return out;
}

bool Shaker::fill_tail(const Sge& tail) {
  std::vector<std::shared_ptr<PostedReceives>> receives;
  std::vector<std::shared_ptr<CountsCompletions>> qps;
  {
    const os::MutexLock lock(mutex_);
    receives = living(receives_);
    for (const auto& [number, qp] : qps_) {
      if (auto held = qp.lock()) qps.push_back(std::move(held));
    }
  }
  const auto uses = [&tail](const auto& one) { return one->may_use(tail); };
  if (std::ranges::any_of(receives, uses) || std::ranges::any_of(qps, uses)) return false;
  const int octet = static_cast<int>(value() & 0xff);
  const os::MutexLock lock(keys_mutex_);  // so long the region is there
  const auto key = keys_.find(tail.lkey);
  if (key == keys_.end() || tail.addr < key->second.addr) return false;
  if (tail.length > key->second.addr + key->second.length - tail.addr) return false;
  // A peer that may write there has done so since, perhaps.
  const auto lets_it = [&tail](const auto& one) {
    const Region& region = one.second;
    return region.peer_writes && region.addr < tail.addr + tail.length &&
           tail.addr < region.addr + region.length;
  };
  if (std::ranges::any_of(keys_, lets_it)) return false;
  std::memset(reinterpret_cast<void*>(tail.addr), octet, tail.length);
  return true;
}

void Shaker::key(std::uint32_t lkey, const Region& region) {
  const os::MutexLock lock(keys_mutex_);
  keys_[lkey] = region;
}

void Shaker::dead_key(std::uint32_t lkey) {
  const os::MutexLock lock(keys_mutex_);
  keys_.erase(lkey);
}

void Shaker::ring_later(const std::weak_ptr<CountsCompletions>& qp, std::chrono::nanoseconds wait) {
  try {
    const os::MutexLock lock(rings_mutex_);
    if (!running_) os::start_thread([this] { run(); }).detach();
    running_ = true;
    rings_.push({os::monotonic_ns() + wait.count(), qp});
    rings_changed_.notify_one();
  } catch (const std::exception&) {
    // No thread, or no memory: it is not late.
    if (const auto now = qp.lock()) now->ring_now();
  }
}

void Shaker::run() {
  os::MutexLock lock(rings_mutex_);
  for (;;) {
    if (rings_.empty()) {
      rings_changed_.wait(rings_mutex_);
      continue;
    }
    const std::int64_t left = rings_.top().when_ns - os::monotonic_ns();
    if (left > 0) {
      rings_changed_.wait_for(rings_mutex_, std::chrono::nanoseconds(left));
    } else {
      auto qp = rings_.top().qp.lock();
      rings_.pop();
      lock.unlock();
      if (qp != nullptr) qp->ring_now();
      qp.reset();
      lock.lock();
    }
  }
}

void scramble_errno() noexcept {
  if (shaking != nullptr) errno = kErrors[shaker().value() % kErrors.size()];
}

void shake(QpOptions& options) {
  if (!shakes(shake::Effect::kPlacement) || options.type == QpType::kUd) return;
  struct Chance {
    os::Mutex mutex;
    shake::Dice dice WEFT_GUARDED_BY(mutex){shaker().plan().seed, shaker().next_stream()};
    const std::uint64_t qp = shaker().qps_made();  // the one that is being made
    std::uint64_t pieces WEFT_GUARDED_BY(mutex) = 0;
  };
  options.last_octets_first = [chance = std::make_shared<Chance>()] {
    const os::MutexLock lock(chance->mutex);
    const bool late = shaking != nullptr && chance->dice.percent(50);
    const std::chrono::microseconds wait(late ? 1 + chance->dice.below(2000) : 0);
    ++chance->pieces;
    if (late && logs_shaking)
      shake_log("qp %llu: piece %llu of the Writes that come has its end %lld us early\n",
                static_cast<unsigned long long>(chance->qp),
                static_cast<unsigned long long>(chance->pieces),
                static_cast<long long>(wait.count()));
    return wait;
  };
}

void shake_async_event() {
  for (const auto& cq : shaker().queues()) cq->show_all();
}

// Where its octets are not at the addresses of its SGEs, none are filled.
void shake_key(const Mr& mr) {
  if (!shakes(shake::Effect::kUndefined) || mr.of_device_memory) return;
  const auto addr = reinterpret_cast<std::uintptr_t>(mr.engine->addr());
  // A window may be bound to a region that allows it.
  const Access access = mr.engine->access();
  const bool peer_writes = has(access, Access::kRemoteWrite) ||
                           has(access, Access::kRemoteAtomic) || has(access, Access::kBindWindow);
  if (!peer_writes && mr.engine->iova() != addr) return;
  shaker().key(mr.engine->lkey(), {addr, mr.pub.length, peer_writes});
}

void shake_dead_key(std::uint32_t lkey) {
  if (shakes(shake::Effect::kUndefined)) shaker().dead_key(lkey);
}

}  // namespace weft::ibverbs
