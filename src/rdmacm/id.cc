// Ids: create, destroy, migrate between channels.

#include <cerrno>

#include "os/cancel.h"
#include "os/lock.h"
#include "rdmacm/cm.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

ibv_qp_type default_qp_type(rdma_port_space ps) {
  return ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

bool known_port_space(rdma_port_space ps) {
  return ps == RDMA_PS_TCP || ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB || ps == RDMA_PS_IB;
}

// The parts of a destroyed id, to be released outside the mutex.
struct Remains {
  std::shared_ptr<Id> id;
  IdState state{};
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Listener> listener;
  std::list<EventPtr> events;
};

// From here on the engine's events find no id.
Remains detach(const std::shared_ptr<Id>& owned) WEFT_REQUIRES(state().mutex) {
  Remains remains;
  remains.id = owned;
  Id& id = *owned;
  id.alive = false;
  state().ids.erase(&id.pub);
  remains.state = id.state;
  remains.connection = std::move(id.connection);
  remains.listener = std::move(id.listener);
  if (remains.connection != nullptr) remains.connection->context = nullptr;
  if (remains.listener != nullptr) remains.listener->context = nullptr;
  remains.events =
      id.channel->queue.take_if([&id](const EventPtr& event) { return event->owner.get() == &id; });
  if (remains.state == IdState::kDisconnecting) {
    // Its data may still be on the way: a reset would lose what was sent.
    id.lingers.front() = remains.connection;
    state().lingering.splice(state().lingering.end(), id.lingers);
  }
  return remains;
}

void end(const Remains& remains) {
  if (remains.listener != nullptr) remains.listener->close();
  for (const EventPtr& event : remains.events) {
    if (event->is_raw && event->raw.type == ConnectionEvent::Type::kConnectRequest) {
      static_cast<void>(event->raw.connection->reject({}));  // the peer may be gone: fine
    }
  }
  switch (remains.state) {
    case IdState::kRequested: static_cast<void>(remains.connection->reject({})); break;
    case IdState::kConnecting:
    case IdState::kAccepting:
    case IdState::kConnected:
      if (remains.connection != nullptr) remains.connection->abort();
      break;
    case IdState::kDown:
      // The peer of a RoCE-like device may wait for this answer. The connection may live on: an
      // event that is not acknowledged yet, such as its request, holds it.
      if (remains.connection != nullptr) static_cast<void>(remains.connection->disconnect());
      break;
    default: break;
  }
}

void forget_channel(const Id& id) WEFT_REQUIRES(state().mutex) {
  if (id.sync) state().channels.erase(&id.channel->pub);
}

// Before the call waits for acknowledgments.
void observe_end(const std::shared_ptr<Id>& id) {
  if (ibverbs::observer == nullptr) return;
  ibverbs::observe_owed(&id->pub, check::Owed::kCmEvents, [&id] {
    const os::MutexLock lock(state().mutex);
    return static_cast<std::int32_t>(id->events_delivered - id->events_acked);
  });
  ibverbs::observer->destroyed(&id->pub);
}

}  // namespace
}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context,
                   rdma_port_space ps) {
  WEFT_CM_FORWARD(rdma_create_id, channel, out, context, ps)
  WEFT_MAY_FAIL(rdma_create_id, fail_minus);
  return or_minus([&]() -> int {
    release_dropped();
    if (out == nullptr || !known_port_space(ps)) return fail_minus(EINVAL);
    // A bad configuration or no descriptors: better now than at the first event.
    if (weft_ibv_cm_context() == nullptr) return -1;
    auto id = make_id();
    id->sync = channel == nullptr;
    if (id->sync) {
      id->channel = make_channel();
      if (id->channel == nullptr) return -1;
    }
    UnkeptChannel unkept(id->channel.get());
    const weft::os::MutexLock lock(state().mutex);
    if (!id->sync) id->channel = live_channel(channel);
    if (id->channel == nullptr) return fail_minus(EINVAL);
    id->pub.channel = &id->channel->pub;
    id->pub.context = context;
    id->pub.ps = ps;
    id->pub.qp_type = default_qp_type(ps);
    rdma_cm_id* const handle = &id->pub;
    enter(std::move(id));
    static_cast<void>(unkept.release());
    *out = handle;
    return 0;
  });
}

int rdma_destroy_id(rdma_cm_id* handle) {
  WEFT_CM_FORWARD(rdma_destroy_id, handle)
  release_dropped();
  Remains remains;
  {
    const weft::os::MutexLock lock(state().mutex);
    const std::shared_ptr<Id> found = live_id(handle);
    if (found == nullptr) {
      weft::ibverbs::observe_not_live(handle);
      return fail_minus(EINVAL);
    }
    remains = detach(found);
  }
  end(remains);
  const std::shared_ptr<Id>& id = remains.id;
  if (id->sync && id->pub.event != nullptr) rdma_ack_cm_event(id->pub.event);
  const weft::os::NoCancel guard;
  observe_end(id);
  weft::os::MutexLock lock(state().mutex);
  while (id->events_acked != id->events_delivered) state().acked.wait(state().mutex);
  forget_channel(*id);
  lock.unlock();
  return 0;
}

int rdma_migrate_id(rdma_cm_id* handle, rdma_event_channel* channel) {
  WEFT_CM_FORWARD(rdma_migrate_id, handle, channel)
  WEFT_MAY_FAIL(rdma_migrate_id, fail_minus);
  return or_minus([&]() -> int {
    const bool sync = channel == nullptr;
    std::shared_ptr<Channel> own = sync ? make_channel() : nullptr;
    if (sync && own == nullptr) return -1;
    UnkeptChannel unkept(own.get());
    weft::os::MutexLock lock(state().mutex);
    const std::shared_ptr<Id> id = live_id(handle);
    if (id == nullptr) weft::ibverbs::observe_not_live(handle);
    const std::shared_ptr<Channel> target = sync ? own : live_channel(channel);
    if (id == nullptr || target == nullptr || (sync && id->sync)) {
      return fail_minus(EINVAL);
    }
    rdma_cm_event* kept = id->sync ? id->pub.event : nullptr;
    const std::shared_ptr<Channel> before = id->channel;
    auto events =
        before->queue.take_if([&id](const EventPtr& event) { return event->owner == id; });
    target->queue.push_all(std::move(events));
    forget_channel(*id);
    static_cast<void>(unkept.release());
    id->channel = target;
    id->pub.channel = &target->pub;
    id->sync = sync;
    if (kept != nullptr) {
      id->pub.event = nullptr;
      lock.unlock();
      rdma_ack_cm_event(kept);
      lock.lock();
    }
    // Events fetched from the old channel must be done with before the caller may destroy it.
    const weft::os::NoCancel guard;
    while (id->events_acked != id->events_delivered) state().acked.wait(state().mutex);
    return 0;
  });
}

}  // extern "C"
