// The interface that the engine calls (engine.h), on its thread.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>

namespace weft::io {

// Names one scheduled call of on_timer(). 0 is never given.
using TimerId = std::uint64_t;

// The interface that the engine calls. The engine holds a weak reference, and a share while a
// callback runs: a handler that has gone is not called, whatever is still registered. The last
// share may end on the engine's thread.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void on_io(std::uint32_t events) { static_cast<void>(events); }  // EPOLLIN...
  virtual void on_timer(TimerId id) { static_cast<void>(id); }
};

// A reference to `part`, which `owner` keeps alive.
template <class Owner>
[[nodiscard]] std::weak_ptr<Handler> handler_within(const std::weak_ptr<Owner>& owner,
                                                    Handler* part) {
  return std::shared_ptr<Handler>(owner.lock(), part);
}

}  // namespace weft::io
