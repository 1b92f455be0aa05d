#include "rdmacm/sink.h"

#include <algorithm>

#include "os/lock.h"

namespace weft::rdmacm {
namespace {

std::shared_ptr<Sink>* the_sink = new std::shared_ptr<Sink>(std::make_shared<Sink>());

// In a child after fork: the parent's engine may be delivering to the old one.
void forget_sink() { the_sink = new std::shared_ptr<Sink>(std::make_shared<Sink>()); }

// The id that the event belongs to, or null when it was destroyed.
Id* owner_of(const ConnectionEvent& event) WEFT_REQUIRES(state().mutex) {
  if (event.type == ConnectionEvent::Type::kConnectRequest) {
    return event.listener != nullptr ? static_cast<Id*>(event.listener->context) : nullptr;
  }
  return event.connection != nullptr ? static_cast<Id*>(event.connection->context) : nullptr;
}

void move_state(Id& id, ConnectionEvent::Type type) {
  using Type = ConnectionEvent::Type;
  switch (type) {
    case Type::kResponse:
    case Type::kEstablished:
      // rdma_disconnect may have been called already.
      if (id.state == IdState::kConnecting || id.state == IdState::kAccepting) {
        id.state = IdState::kConnected;
      }
      break;
    case Type::kRejected:
    case Type::kUnreachable:
    case Type::kConnectError:
    case Type::kDisconnected: id.state = IdState::kDown; break;
    case Type::kConnectRequest: break;
  }
}

// A connection whose id is gone.
void note_orphan(ConnectionEvent&& event) WEFT_REQUIRES(state().mutex) {
  if (event.type == ConnectionEvent::Type::kDisconnected) {
    const auto at = std::ranges::find(state().lingering, event.connection);
    if (at != state().lingering.end())
      state().done.splice(state().done.end(), state().lingering, at);
  }
  // Nothing may be released here: the engine holds its locks.
  state().dropped.push_back(std::move(event));
}

}  // namespace

std::shared_ptr<EventChannel> sink() {
  static const bool watching = [] {
    weft_ibv_on_fork_child(forget_sink);
    return true;
  }();
  static_cast<void>(watching);
  return *the_sink;
}

Result<ConnectionEvent> Sink::next(std::optional<std::chrono::nanoseconds>) {
  return fail(Error::kUnsupported);
}

void Sink::post(ConnectionEvent&& event) {
  const os::MutexLock lock(state().mutex);
  Id* const found = owner_of(event);
  const std::shared_ptr<Id> id = found != nullptr ? live_id(&found->pub) : nullptr;
  if (id == nullptr) return note_orphan(std::move(event));
  std::list<EventPtr> node;  // what needs memory comes first
  node.push_back(std::make_unique<Event>());
  move_state(*id, event.type);
  Event& queued = *node.front();
  queued.owner = id;
  queued.raw = std::move(event);
  queued.is_raw = true;
  id->channel->queue.push_all(std::move(node));
}

}  // namespace weft::rdmacm
