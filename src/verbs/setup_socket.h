// The socket of a connection that is being set up: what the engine tells of it, its time limit, and
// its trace. What can't be had is kept until it is asked for, see lack().
//
// With the connection's mutex held.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "io/engine.h"
#include "os/fd.h"
#include "trace/pcap.h"

namespace weft::verbs {

class SetupSocket {
 public:
  explicit SetupSocket(io::Engine& engine) noexcept : engine_(engine) {}
  // The connection, whom the engine calls. Once, before all below.
  void belong_to(std::weak_ptr<io::Handler> owner) noexcept { owner_ = std::move(owner); }

  SetupSocket& operator=(os::Fd fd) noexcept {
    fd_ = std::move(fd);
    return *this;
  }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  // To the queue pair. Nothing watches it any more.
  [[nodiscard]] os::Fd hand_over();
  void close(bool with_reset);

  // --- what the engine tells ---
  void watch(std::uint32_t events);
  void unwatch();
  void set_timer(Instant at);  // never: none
  void clear_timer();
  // Both.
  void stand_down() {
    unwatch();
    clear_timer();
  }
  // False: the timer was another, since replaced.
  [[nodiscard]] bool is_time(io::TimerId id) noexcept;
  // The resource that watch() or set_timer() could not get since the last question.
  [[nodiscard]] std::optional<Error> lack() noexcept { return std::exchange(lack_, std::nullopt); }

  // --- traced ---
  // Null: tracing is off.
  void start_trace(trace::Tracer* tracer, const SocketAddress& local, const SocketAddress& peer,
                   bool initiator) {
    if (tracer != nullptr) trace_ = tracer->start(local, peer, initiator);
  }
  [[nodiscard]] std::unique_ptr<trace::Trace> take_trace() noexcept { return std::move(trace_); }
  // As send(2) and recv(2), without waiting.
  [[nodiscard]] ssize_t send(std::span<const std::uint8_t> octets);
  [[nodiscard]] ssize_t receive(std::span<std::uint8_t> room);

 private:
  io::Engine& engine_;
  std::weak_ptr<io::Handler> owner_;
  os::Fd fd_;
  bool watching_ = false;
  std::uint32_t watched_ = 0;
  io::TimerId timer_ = 0;
  Instant timer_at_ = Instant::never();
  std::unique_ptr<trace::Trace> trace_;
  std::optional<Error> lack_;
};

}  // namespace weft::verbs
