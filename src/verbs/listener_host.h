// The listener as the connections that it took know it. Called with the connection's mutex_ held.
#pragma once

#include <weft/connection.h>

#include <memory>

namespace weft::verbs {

class ConnectionImpl;

class ListenerHost : public Listener {
 public:
  // Its connections carry queue pairs.
  [[nodiscard]] virtual bool carries() const noexcept = 0;
  [[nodiscard]] virtual bool is_closed() const noexcept = 0;
  // Where its requests go now.
  [[nodiscard]] virtual std::shared_ptr<EventChannel> channel() const = 0;
  // The Request is there. True: the connection is no longer half-open, but undelivered. False: the
  // backlog is full. The connection stays half-open, and gets report_request() when it has a place.
  [[nodiscard]] virtual bool request_ready(ConnectionImpl& connection) = 0;
  // The application has it, or it is gone.
  virtual void request_settled() = 0;
  // A half-open connection has failed. The caller lets go of it without locks.
  [[nodiscard]] virtual std::shared_ptr<ConnectionImpl> forget_half_open(
      ConnectionImpl& connection) = 0;
};

}  // namespace weft::verbs
