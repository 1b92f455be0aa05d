#include "ibverbs/registry.h"

#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "ibverbs/dead_context.h"

namespace weft::ibverbs::registry {
namespace {

// How many destroyed objects stay readable, for programs that post to or poll what they destroyed.
constexpr std::size_t kGraves = 512;

struct Entry {
  Kind kind{};
  std::shared_ptr<void> object;
  std::atomic<std::uint32_t>* pins = nullptr;
};

struct State {
  std::mutex mutex;
  std::unordered_map<const void*, Entry> live;
  std::unordered_map<std::uint32_t, const void*> qps;
  std::deque<std::pair<const void*, std::shared_ptr<void>>> graves;
  std::unordered_set<const void*> buried;  // the handles in `graves`, and those on their way there
};

// Never destroyed: programs call from atexit handlers and from destructors of their own.
State* state = new State;

std::uint32_t number_of(const Entry& qp) {
  return static_cast<Qp*>(qp.object.get())->pub.qp_base.qp_num;
}

void lead_to_dead_context(const Entry& entry) {
  ibv_context* dead = dead_context();
  switch (entry.kind) {
    case Kind::kContext:
      static_cast<Context*>(entry.object.get())->verbs.context.ops = dead->ops;
      break;
    case Kind::kPd: static_cast<Pd*>(entry.object.get())->pub.context = dead; break;
    case Kind::kThreadDomain:
      static_cast<ThreadDomain*>(entry.object.get())->pub.context = dead;
      break;
    case Kind::kMr: static_cast<Mr*>(entry.object.get())->pub.context = dead; break;
    case Kind::kMw: static_cast<Mw*>(entry.object.get())->pub.context = dead; break;
    case Kind::kChannel: static_cast<Channel*>(entry.object.get())->pub.context = dead; break;
    case Kind::kCq: static_cast<Cq*>(entry.object.get())->pub.context = dead; break;
    case Kind::kQp: static_cast<Qp*>(entry.object.get())->pub.qp_base.context = dead; break;
    case Kind::kAh: static_cast<Ah*>(entry.object.get())->pub.context = dead; break;
    case Kind::kDm: static_cast<Dm*>(entry.object.get())->pub.context = dead; break;
    case Kind::kSrq: static_cast<Srq*>(entry.object.get())->pub.context = dead; break;
  }
}

// Out of the live ones; nothing when somebody else was first.
Entry take_out(const void* handle, const std::atomic<std::uint32_t>& pins) {
  const std::lock_guard lock(state->mutex);
  const auto at = state->live.find(handle);
  // Another object may live at this address already.
  if (at == state->live.end() || at->second.pins != &pins) return {};
  Entry entry = std::move(at->second);
  if (entry.kind == Kind::kQp) state->qps.erase(number_of(entry));
  state->buried.insert(handle);
  state->live.erase(at);
  return entry;
}

std::shared_ptr<void> pinned(const Entry& entry) {
  entry.pins->fetch_add(1, std::memory_order_relaxed);
  return entry.object;
}

}  // namespace

void add(const void* handle, Kind kind, std::shared_ptr<void> object,
         std::atomic<std::uint32_t>& pins) {
  const std::lock_guard lock(state->mutex);
  const Entry entry{kind, std::move(object), &pins};
  if (kind == Kind::kQp) state->qps[number_of(entry)] = handle;
  state->live.insert_or_assign(handle, entry);
}

std::shared_ptr<void> pin(const void* handle, Kind kind) {
  const std::lock_guard lock(state->mutex);
  const auto at = state->live.find(handle);
  if (at == state->live.end() || at->second.kind != kind) return nullptr;
  return pinned(at->second);
}

std::shared_ptr<void> pin_qp_by_number(std::uint32_t number) {
  const std::lock_guard lock(state->mutex);
  const auto at = state->qps.find(number);
  if (at == state->qps.end()) return nullptr;
  return pinned(state->live.at(at->second));
}

bool is_live(const void* handle) {
  const std::lock_guard lock(state->mutex);
  return state->live.contains(handle);
}

bool bury(const void* handle, const std::atomic<std::uint32_t>& pins) {
  Entry entry = take_out(handle, pins);
  if (entry.object == nullptr) return false;
  for (std::uint32_t now = pins.load(std::memory_order_acquire); now != 1;
       now = pins.load(std::memory_order_acquire)) {
    pins.wait(now, std::memory_order_acquire);
  }
  lead_to_dead_context(entry);
  std::shared_ptr<void> oldest;  // freed outside the lock
  const std::lock_guard lock(state->mutex);
  state->graves.emplace_back(handle, std::move(entry.object));
  if (state->graves.size() > kGraves) {
    state->buried.erase(state->graves.front().first);
    oldest = std::move(state->graves.front().second);
    state->graves.pop_front();
  }
  return true;
}

bool is_buried(const void* handle) {
  const std::lock_guard lock(state->mutex);
  return state->buried.contains(handle);
}

void each_context(const std::function<void(Context&)>& visit) {
  const std::lock_guard lock(state->mutex);
  for (const auto& [handle, entry] : state->live) {
    if (entry.kind == Kind::kContext) visit(*static_cast<Context*>(entry.object.get()));
  }
}

void forget_all() { state = new State; }

}  // namespace weft::ibverbs::registry
