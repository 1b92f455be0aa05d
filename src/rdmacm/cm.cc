#include "rdmacm/cm.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "os/guarded.h"
#include "os/lock.h"

namespace weft::rdmacm {
namespace {

// `weft run --faults` has this event (rdma_cm_event_type) come to each id that has a device.
void raise_for_all(int event) {
  static_cast<void>(os::guarded([&]() -> Status {
    const os::MutexLock lock(state().mutex);
    for (const auto& [handle, id] : state().ids) {
      if (id->pub.verbs != nullptr) queue_plain(id, event);
    }
    return {};
  }));
}

__attribute__((constructor)) void start_observing() {
  ibverbs::observer = weft_ibv_observer(raise_for_all);
}

State* current = new State;  // never destroyed: the engine's threads outlive static objects

// The parent's ids and connections are not the child's to touch, and its mutex may be held.
void forget_parent() {
  current = new State;
  ibverbs::inherit_observer();
}

void observe_made(const Id& id) {
  if (ibverbs::observer == nullptr) return;
  check::Made made;
  made.handle = &id.pub;
  made.kind = check::Kind::kCmId;
  ibverbs::observer->made(made);
}

}  // namespace

State& state() {
  static const bool watching = [] {
    weft_ibv_on_fork_child(forget_parent);
    return true;
  }();
  static_cast<void>(watching);
  return *current;
}

Channel::~Channel() = default;

void release_dropped() {
  std::vector<ConnectionEvent> events;
  std::list<std::shared_ptr<Connection>> connections;
  {
    const os::MutexLock lock(state().mutex);
    events.swap(state().dropped);
    connections.swap(state().done);
  }
}

std::shared_ptr<Id> live_id(const rdma_cm_id* handle) {
  const auto at = state().ids.find(handle);
  return at == state().ids.end() ? nullptr : at->second;
}

std::shared_ptr<Id> find_id(const rdma_cm_id* handle) {
  const os::MutexLock lock(state().mutex);
  std::shared_ptr<Id> id = live_id(handle);
  if (id == nullptr) ibverbs::observe_not_live(handle);
  return id;
}

std::shared_ptr<Channel> live_channel(rdma_event_channel* handle) {
  const auto at = state().channels.find(handle);
  if (at != state().channels.end()) return at->second;
  ibverbs::observe_not_live(handle);
  return nullptr;
}

std::shared_ptr<Id> make_id() {
  if (ibverbs::observer == nullptr) return std::make_shared<Id>();
  // Its memory stays when it goes: a handle then names one id for good.
  void* const place = ::operator new(sizeof(Id));
  return {new (place) Id, [](Id* id) { id->~Id(); }};
}

void enter(std::shared_ptr<Id> id) {
  id->alive = true;
  observe_made(*id);
  const rdma_cm_id* handle = &id->pub;
  state().ids.emplace(handle, std::move(id));
}

ibverbs::Pin<ibverbs::Qp> qp_of(const Id& id) {
  ibverbs::Pin<ibverbs::Qp> qp;
  if (id.pub.qp != nullptr || id.external_qp != 0) weft_ibv_qp(id.pub.qp, id.external_qp, qp);
  return qp;
}

std::shared_ptr<Device> device() {
  std::shared_ptr<Device> engine;
  if (ibv_context* context = weft_ibv_cm_context()) {
    errno = EINVAL;  // should another thread close it just now
    weft_ibv_engine(context, engine);
  }
  return engine;
}

void queue_event(const std::shared_ptr<Id>& owner, EventPtr event) {
  event->owner = owner;
  owner->channel->queue.push(std::move(event));
}

void queue_plain(const std::shared_ptr<Id>& owner, int type) {
  auto event = std::make_unique<Event>();
  event->pub.event = static_cast<rdma_cm_event_type>(type);
  event->pub.id = &owner->pub;
  queue_event(owner, std::move(event));
}

int attach_device(Id& id, const SocketAddress& own) {
  if (id.pub.verbs != nullptr) return 0;
  ibv_context* context = weft_ibv_cm_context_at(own);
  if (context == nullptr) return errno;
  ibv_pd* pd = weft_ibv_cm_pd(context);
  if (pd == nullptr) return errno;
  id.pub.verbs = context;
  id.pub.pd = pd;
  id.pub.port_num = 1;
  rdma_ib_addr& gids = id.pub.route.addr.addr.ibaddr;
  ibv_query_gid(context, 1, weft_ibv_gid_index(context, gid_of(own)), &gids.sgid);
  ibv_query_pkey(context, 1, 0, &gids.pkey);
  return 0;
}

}  // namespace weft::rdmacm
