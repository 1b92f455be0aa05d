// The event channel that EventChannel::create() makes. Any thread.
//
// The queue keeps connections alive only in requests that nobody has taken yet; in all other
// events, and for listeners, it looks and does not hold: an event about an object that is gone is
// skipped.
#pragma once

#include <weft/connection.h>

#include <memory>

#include "os/signal_queue.h"

namespace weft::verbs {

class EventChannelImpl final : public EventChannel {
 public:
  [[nodiscard]] static Result<std::shared_ptr<EventChannelImpl>> create();

  [[nodiscard]] int fd() const override { return queue_->fd(); }
  [[nodiscard]] Result<ConnectionEvent> next(
      std::optional<std::chrono::nanoseconds> timeout) override;
  void post(ConnectionEvent&& event) override;
  [[nodiscard]] EventChannelImpl* own() noexcept override { return this; }
  // The own() of a channel that may be null.
  [[nodiscard]] static EventChannelImpl* of(const std::shared_ptr<EventChannel>& channel) noexcept {
    return channel != nullptr ? channel->own() : nullptr;
  }

  // Moves the events about `connection`, or the requests of `listener`, to another channel, in
  // order. REQUIRES: nothing about the object is posted meanwhile.
  // False: there was none.
  bool move_events(const Connection* connection, EventChannelImpl& to);
  void move_requests(const Listener* listener, EventChannelImpl& to);
  // Drops the requests of a listener that nobody has taken, which closes them.
  void drop_requests(const Listener* listener);
  // The same for one, by its connection. REQUIRES: the caller has another share of its handle.
  void drop_request(const Connection* connection);

 private:
  struct Item {
    ConnectionEvent event;  // listener is null; connection too, unless it is a request
    std::weak_ptr<Connection> connection;
    std::weak_ptr<Listener> listener;
    const Connection* connection_id = nullptr;
    const Listener* listener_id = nullptr;
  };

  explicit EventChannelImpl(std::unique_ptr<os::SignalQueue<Item>> queue)
      : queue_(std::move(queue)) {}
  template <class Predicate>
  bool move_if(EventChannelImpl& to, Predicate pred);

  std::unique_ptr<os::SignalQueue<Item>> queue_;
};

}  // namespace weft::verbs
