#include "verbs/event_channel.h"

#include <algorithm>

#include "io/clock.h"
#include "verbs/connection.h"

namespace weft {

Result<std::shared_ptr<EventChannel>> EventChannel::create() {
  return verbs::EventChannelImpl::create();
}

namespace verbs {

Result<std::shared_ptr<EventChannelImpl>> EventChannelImpl::create() {
  auto queue = io::Signal<Item>::create();
  if (!queue) return fail(queue.error());
  return std::shared_ptr<EventChannelImpl>(new EventChannelImpl(std::move(*queue)));
}

void EventChannelImpl::post(ConnectionEvent event) {
  Item item;
  item.connection = event.connection;
  item.listener = event.listener;
  item.connection_id = event.connection.get();
  item.listener_id = event.listener.get();
  event.listener.reset();
  if (event.type != ConnectionEvent::Type::kConnectRequest) event.connection.reset();
  item.event = std::move(event);
  queue_->push(std::move(item));
}

Result<ConnectionEvent> EventChannelImpl::next(std::optional<std::chrono::nanoseconds> timeout) {
  const Instant until = timeout ? io::now() + *timeout : Instant::never();
  while (true) {
    auto item = queue_->next(timeout);
    if (!item) return fail(item.error());
    if (timeout) timeout = std::max(until - io::now(), Duration{0});
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
void EventChannelImpl::move_if(EventChannelImpl& to, Predicate pred) {
  if (&to == this) return;
  for (Item& item : queue_->take_if(pred)) to.queue_->push(std::move(item));
}

void EventChannelImpl::move_events(const Connection* connection, EventChannelImpl& to) {
  move_if(to, [=](const Item& item) { return item.connection_id == connection; });
}

void EventChannelImpl::move_requests(const Listener* listener, EventChannelImpl& to) {
  move_if(to, [=](const Item& item) { return item.listener_id == listener; });
}

void EventChannelImpl::drop_requests(const Listener* listener) {
  const auto dropped =
      queue_->take_if([=](const Item& item) { return item.listener_id == listener; });
  static_cast<void>(dropped);
}

}  // namespace verbs
}  // namespace weft
