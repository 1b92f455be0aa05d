// The sockets that call a peer until TCP's handshake is over. The first stays, since its path may
// be slow; another calls beside it from time to time in case its SYN was dropped, which the kernel
// repeats only after a second. Not thread-safe.
#pragma once

#include <weft/address.h>
#include <weft/config.h>

#include <array>
#include <memory>

#include "base/result.h"
#include "io/engine.h"
#include "os/fd.h"

namespace weft::verbs {

class Calling {
 public:
  explicit Calling(io::Engine& engine) noexcept : engine_(engine) {}
  ~Calling() { drop(); }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

  [[nodiscard]] bool any() const noexcept { return first_ || beside_; }
  // Calls `to` from the address `from`, in place of one that calls beside the first. `handler`
  // hears when the handshake is over, or has failed.
  // Errors: those of socket(2), bind(2) and connect(2); kLimitExceeded: epoll takes no more
  [[nodiscard]] Status call(const Config& config, const SocketAddress& from,
                            const SocketAddress& to, const std::weak_ptr<io::Handler>& handler);
  // The socket whose handshake is over, which the engine still watches; the other is closed. None:
  // not yet. An error: the peer refuses all.
  [[nodiscard]] Result<os::Fd> take_connected();
  void drop();

 private:
  void drop_one(os::Fd& one);

  io::Engine& engine_;
  os::Fd first_, beside_;  // watched
};

}  // namespace weft::verbs
