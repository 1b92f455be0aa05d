#include "ibverbs/registry.h"

#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ibverbs/dead_context.h"

namespace weft::ibverbs::registry {
namespace {

// How many destroyed objects stay readable.
constexpr std::size_t kGraves = 512;

struct Entry {
  Kind kind;
  std::shared_ptr<void> object;
};

struct State {
  std::mutex mutex;
  std::unordered_map<const void*, Entry> live;
  std::unordered_map<std::uint32_t, Qp*> qps;
  std::deque<std::pair<const void*, std::shared_ptr<void>>> graves;
  std::unordered_set<const void*> buried;  // the handles in `graves`
};

// Never destroyed: programs call from atexit handlers and from destructors of their own.
State* state = new State;

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
    case Kind::kSrq: static_cast<Srq*>(entry.object.get())->pub.context = dead; break;
  }
}

}  // namespace

void add(const void* handle, Kind kind, std::shared_ptr<void> object) {
  const std::lock_guard lock(state->mutex);
  if (kind == Kind::kQp) {
    Qp* qp = static_cast<Qp*>(object.get());
    state->qps[qp->pub.qp_base.qp_num] = qp;
  }
  state->live.insert_or_assign(handle, Entry{kind, std::move(object)});
}

std::shared_ptr<void> find(const void* handle, Kind kind) {
  const std::lock_guard lock(state->mutex);
  const auto at = state->live.find(handle);
  if (at == state->live.end() || at->second.kind != kind) return nullptr;
  return at->second.object;
}

bool is_live(const void* handle) {
  const std::lock_guard lock(state->mutex);
  return state->live.contains(handle);
}

bool bury(const void* handle) {
  std::shared_ptr<void> oldest;  // freed outside the lock
  const std::lock_guard lock(state->mutex);
  const auto at = state->live.find(handle);
  if (at == state->live.end()) return false;
  if (at->second.kind == Kind::kQp) {
    state->qps.erase(static_cast<Qp*>(at->second.object.get())->pub.qp_base.qp_num);
  }
  lead_to_dead_context(at->second);
  state->graves.emplace_back(handle, std::move(at->second.object));
  state->buried.insert(handle);
  state->live.erase(at);
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

Qp* qp_by_number(std::uint32_t number) {
  const std::lock_guard lock(state->mutex);
  const auto at = state->qps.find(number);
  return at == state->qps.end() ? nullptr : at->second;
}

void each_context(const std::function<void(Context&)>& visit) {
  const std::lock_guard lock(state->mutex);
  for (const auto& [handle, entry] : state->live) {
    if (entry.kind == Kind::kContext) visit(*static_cast<Context*>(entry.object.get()));
  }
}

void forget_all() { state = new State; }

}  // namespace weft::ibverbs::registry
