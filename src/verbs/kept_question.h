// The socket of a question that was answered (port_map_service.h), kept for a moment: who connects
// to the same peer next asks by it, and saves the six system calls that make a socket, tell the
// engine of it and close it. The answer is not kept: the service may have moved.
//
// One for a device. Any thread; what is kept is closed on the engine's.
#pragma once

#include <weft/address.h>

#include <memory>
#include <optional>

#include "base/time.h"
#include "io/engine.h"
#include "os/lock.h"
#include "verbs/port_map_service.h"

namespace weft::verbs {

class KeptQuestion final : public io::Handler {
 public:
  static constexpr Duration kKept{1'000'000'000};

  // `self` keeps the device. REQUIRES: before all below.
  void start(io::Engine& engine, std::weak_ptr<io::Handler> self) noexcept {
    engine_ = &engine;
    self_ = std::move(self);
  }
  // REQUIRES: the engine knows the socket, and nothing is on its way to it. One that was kept
  // before is closed.
  void keep(PortQuestion question, const SocketAddress& local, const SocketAddress& peer);
  // With callbacks to `asker` from now on. None: no question from there to that peer was kept.
  [[nodiscard]] std::optional<PortQuestion> take(const SocketAddress& local,
                                                 const SocketAddress& peer,
                                                 const std::weak_ptr<io::Handler>& asker);

  void on_io(std::uint32_t events) override;  // nobody awaits anything
  void on_timer(io::TimerId id) override;

 private:
  struct Kept {
    PortQuestion question;
    SocketAddress local;
    SocketAddress peer;
    Instant until;
  };
  void let_go(std::optional<Kept> kept);
  [[nodiscard]] bool schedule(Instant until);

  io::Engine* engine_ = nullptr;
  std::weak_ptr<io::Handler> self_;
  os::Mutex mutex_;
  std::optional<Kept> kept_ WEFT_GUARDED_BY(mutex_);
  bool timer_set_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::verbs
