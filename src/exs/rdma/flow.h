// The data of one connection over RDMA: bytes of a stream, or packets. StreamFlow and PacketFlow
// move them, RdmaSocket calls.
//
// With the mutex of the socket. Functions that return text say why the connection has to end; null:
// it goes on.
#pragma once

#include "exs/core/exs_messages.h"

namespace weft::exs {

class Flow {
 public:
  Flow() = default;
  virtual ~Flow() = default;
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Memory for what waits here. Completes `mine`, our offer. 0 or an errno.
  virtual int open(Hello& mine) = 0;
  // Both ends have said what they offer. Once, before any message.
  virtual void start(const Hello& mine, const Hello& theirs) = 0;
  // The device and the peer reach that memory no more.
  virtual void release() {}

  // Sends what can be sent now, and offers memory.
  [[nodiscard]] virtual const char* pump() = 0;
  // The application has posted receives.
  virtual void receives_posted() = 0;
  // Posts of ours are done: ends the operations that waited for them.
  virtual void posts_done() = 0;
  // Ends what it can of the cancelled operations, and tells the peer of the others.
  virtual void cancel() = 0;
  // The same once more for those of which the peer has been told.
  virtual void cancel_told() = 0;
  // No more sends will be posted.
  virtual void stop() {}

  // A message that is not one of the connection itself. REQUIRES start().
  [[nodiscard]] virtual const char* on_message(const Message& message) = 0;
  // The counters that every message brings. REQUIRES start().
  [[nodiscard]] virtual const char* on_counters(const Header& header) = 0;
  // The peer sends no more: finished() from now on. Once. REQUIRES start().
  [[nodiscard]] virtual const char* on_finish() = 0;
  [[nodiscard]] bool finished() const { return finished_; }

  // Our counters, for a message to be sent. REQUIRES start().
  virtual void tell(Header& header) = 0;
  // The peer may well wait for them.
  [[nodiscard]] virtual bool has_to_tell() const = 0;

  // There is something to receive.
  [[nodiscard]] virtual bool readable() const = 0;
  // The peer has room for more.
  [[nodiscard]] virtual bool writable() const = 0;

 protected:
  bool finished_ = false;
};

}  // namespace weft::exs
