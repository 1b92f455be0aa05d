#include "ibverbs/registry.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ibverbs/errors.h"
#include "os/lock.h"

namespace weft::ibverbs::registry {
namespace {

// How many destroyed objects stay readable, for programs that post to or poll what they destroyed.
constexpr std::size_t kQuarantined = 512;
constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::kAh) + 1;

struct Entry {
  Kind kind{};
  std::shared_ptr<void> object;
  std::atomic<std::uint32_t>* pins = nullptr;
  Disable disable = nullptr;
  bool dying = false;  // quarantine() waits for its pins
};

struct State {
  os::Mutex mutex;
  std::unordered_map<const void*, Entry> live WEFT_GUARDED_BY(mutex);
  std::unordered_map<std::uint32_t, const void*> qps WEFT_GUARDED_BY(mutex);
  std::array<std::size_t, kKinds> counts WEFT_GUARDED_BY(mutex){};
  // A ring, its oldest at `next_place`. So to put something there needs no memory.
  std::array<std::pair<const void*, std::shared_ptr<void>>, kQuarantined> quarantined
      WEFT_GUARDED_BY(mutex);
  std::size_t next_place WEFT_GUARDED_BY(mutex) = 0;
  // With keeps_destroyed nothing leaves.
  std::vector<std::shared_ptr<void>> kept WEFT_GUARDED_BY(mutex);
};

// Never destroyed: programs call from atexit handlers and from destructors of their own.
State* state = new State;

std::uint32_t number_of(const Entry& qp) {
  return static_cast<Qp*>(qp.object.get())->pub.qp_base.qp_num;
}

// Out of reach; false when somebody else was first.
bool take_out(const void* handle, const std::atomic<std::uint32_t>& pins) {
  const os::MutexLock lock(state->mutex);
  const auto at = state->live.find(handle);
  // Another object may live at this address already.
  if (at == state->live.end() || at->second.pins != &pins || at->second.dying) return false;
  at->second.dying = true;
  if (at->second.kind == Kind::kQp) state->qps.erase(number_of(at->second));
  return true;
}

// End: it is not alive.
auto find_live(const void* handle) WEFT_REQUIRES(state->mutex) {
  const auto at = state->live.find(handle);
  return at == state->live.end() || at->second.dying ? state->live.end() : at;
}

std::shared_ptr<void> pinned(const Entry& entry) {
  entry.pins->fetch_add(1, std::memory_order_relaxed);
  return entry.object;
}

}  // namespace

void add(const void* handle, Kind kind, std::shared_ptr<void> object,
         std::atomic<std::uint32_t>& pins, Disable disable) {
  static_cast<void>(dead_context());  // what its end needs is there from the beginning
  const os::MutexLock lock(state->mutex);
  Entry entry{kind, std::move(object), &pins, disable};
  std::unordered_map<std::uint32_t, const void*> qp;
  if (kind == Kind::kQp) {
    qp.emplace(number_of(entry), handle);
    state->qps.reserve(state->qps.size() + 1);
  }
  state->live.insert_or_assign(handle, std::move(entry));
  // Needs no memory: it has its room, and its node.
  state->qps.merge(qp);
  ++state->counts[static_cast<std::size_t>(kind)];
}

std::shared_ptr<void> pin(const void* handle, Kind kind) {
  const os::MutexLock lock(state->mutex);
  const auto at = find_live(handle);
  if (at == state->live.end() || at->second.kind != kind) return nullptr;
  return pinned(at->second);
}

std::shared_ptr<void> pin_qp_by_number(std::uint32_t number) {
  const os::MutexLock lock(state->mutex);
  const auto at = state->qps.find(number);
  if (at == state->qps.end()) return nullptr;
  return pinned(state->live.at(at->second));
}

std::size_t count(Kind kind) {
  const os::MutexLock lock(state->mutex);
  return state->counts[static_cast<std::size_t>(kind)];
}

bool is_live(const void* handle) {
  const os::MutexLock lock(state->mutex);
  return find_live(handle) != state->live.end();
}

bool quarantine(const void* handle, const std::atomic<std::uint32_t>& pins) {
  if (!take_out(handle, pins)) return false;
  if (observer != nullptr) observer->destroyed(handle);
  for (std::uint32_t now = pins.load(std::memory_order_acquire); now != 1;
       now = pins.load(std::memory_order_acquire)) {
    pins.wait(now, std::memory_order_acquire);
  }
  std::shared_ptr<void> oldest;  // freed outside the lock
  const os::MutexLock lock(state->mutex);
  const auto at = state->live.find(handle);
  at->second.disable(at->second.object.get());
  auto& place =
      state->quarantined[std::exchange(state->next_place, (state->next_place + 1) % kQuarantined)];
  oldest = std::exchange(place.second, std::move(at->second.object));
  place.first = handle;
  if (keeps_destroyed && oldest != nullptr) state->kept.push_back(std::move(oldest));
  --state->counts[static_cast<std::size_t>(at->second.kind)];
  state->live.erase(at);
  return true;
}

bool is_quarantined(const void* handle) {
  const os::MutexLock lock(state->mutex);
  const auto at = state->live.find(handle);
  if (at != state->live.end()) return at->second.dying;
  return handle != nullptr && std::ranges::any_of(state->quarantined, [handle](const auto& place) {
           return place.first == handle;
         });
}

void each_context(const std::function<void(Context&)>& visit) {
  const os::MutexLock lock(state->mutex);
  for (const auto& [handle, entry] : state->live) {
    if (entry.kind == Kind::kContext && !entry.dying)
      visit(*static_cast<Context*>(entry.object.get()));
  }
}

void forget_all() { state = new State; }

}  // namespace weft::ibverbs::registry
