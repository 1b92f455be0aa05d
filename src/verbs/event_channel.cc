#include "verbs/event_channel.h"

#include <algorithm>

#include "os/clock.h"
#include "os/guarded.h"

namespace weft {

Result<std::shared_ptr<EventChannel>> EventChannel::create() {
  return os::guarded([] { return verbs::EventChannelImpl::create(); });
}

namespace verbs {

Result<std::shared_ptr<EventChannelImpl>> EventChannelImpl::create() {
  auto queue = os::SignalQueue<Item>::create();
  if (!queue) return fail(queue.error());
  return std::shared_ptr<EventChannelImpl>(new EventChannelImpl(std::move(*queue)));
}

void EventChannelImpl::post(ConnectionEvent&& event) {
  std::list<Item> node(1);  // what needs memory comes first
  Item& item = node.front();
  item.connection = event.connection;
  item.listener = event.listener;
  item.connection_id = event.connection.get();
  item.listener_id = event.listener.get();
  event.listener.reset();
  if (event.type != ConnectionEvent::Type::kConnectRequest) event.connection.reset();
  item.event = std::move(event);
  queue_->push_all(std::move(node));
}

Result<ConnectionEvent> EventChannelImpl::next(std::optional<std::chrono::nanoseconds> timeout) {
  const Instant until = timeout ? os::now() + *timeout : Instant::never();
  while (true) {
    auto item = queue_->next(timeout);
    if (!item) return fail(item.error());
    if (timeout) timeout = std::max(until - os::now(), Duration{0});
    ConnectionEvent event = std::move(item->event);
    event.connection = item->connection.lock();
    event.listener = item->listener.lock();
    if (event.connection == nullptr) continue;
    if (event.type == ConnectionEvent::Type::kConnectRequest) {
      event.connection->request_taken();
    }
    return event;
  }
}

template <class Predicate>
bool EventChannelImpl::move_if(EventChannelImpl& to, Predicate pred) {
  if (&to == this) return false;
  auto taken = queue_->take_if(pred);
  const bool any = !taken.empty();
  to.queue_->push_all(std::move(taken));
  return any;
}

bool EventChannelImpl::move_events(const Connection* connection, EventChannelImpl& to) {
  return move_if(to, [=](const Item& item) { return item.connection_id == connection; });
}

void EventChannelImpl::move_requests(const Listener* listener, EventChannelImpl& to) {
  move_if(to, [=](const Item& item) { return item.listener_id == listener; });
}

void EventChannelImpl::drop_requests(const Listener* listener) {
  const auto dropped =
      queue_->take_if([=](const Item& item) { return item.listener_id == listener; });
  static_cast<void>(dropped);
}

void EventChannelImpl::drop_request(const Connection* connection) {
  const auto dropped = queue_->take_if([=](const Item& item) {
    return item.connection_id == connection && item.listener_id != nullptr;
  });
  static_cast<void>(dropped);
}

}  // namespace verbs
}  // namespace weft
