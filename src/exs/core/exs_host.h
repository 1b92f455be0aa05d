// A socket's requests to the engine.
#pragma once

#include <memory>

#include "exs/core/operation.h"

namespace weft::exs {

class Socket;
struct PollWait;

class SocketHost {
 public:
  // The engine of the process, see Engine::instance().
  [[nodiscard]] static SocketHost& instance();

  // Polls everything once, if nobody else does. True: something happened.
  virtual bool drive() = 0;
  // The descriptor names `socket` no more.
  virtual void remove(int fd, const Socket* socket) = 0;
  // Calls on_time() and check_limits() of `socket` at `when`.
  virtual void schedule(const std::shared_ptr<Socket>& socket, Instant when) = 0;
  // The same, in place of what was to be at `former`, if that is still to be.
  virtual void reschedule(const std::shared_ptr<Socket>& socket, Instant former, Instant when) = 0;
  // Has `wait` evaluated soon.
  virtual void kick(const std::shared_ptr<PollWait>& wait) = 0;

 protected:
  ~SocketHost() = default;
};

}  // namespace weft::exs
