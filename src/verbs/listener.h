// Listeners: accept TCP connections, wait for their MPA Requests, report them.
//
// Threads: calls from any thread; accepting runs on the engine's thread. Lock order: a connection's
// mutex_, then this one.
#pragma once

#include <weft/connection.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "io/engine.h"
#include "os/fd.h"
#include "os/lock.h"
#include "verbs/device.h"
#include "verbs/half_open.h"
#include "verbs/held.h"
#include "verbs/listener_host.h"
#include "verbs/port_map_service.h"

namespace weft::verbs {

class ListenerImpl final : public ListenerHost,
                           public io::Handler,
                           public std::enable_shared_from_this<ListenerImpl> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<ListenerImpl>> create(
      std::shared_ptr<DeviceImpl> device, const std::shared_ptr<EventChannel>& channel);
  ~ListenerImpl() override;

  [[nodiscard]] Status bind(const SocketAddress& local, bool reuse_address, bool v6_only) override;
  [[nodiscard]] Status bind_service(const SocketAddress& local, bool v6_only) override;
  [[nodiscard]] bool yield_port(std::uint16_t port) override;
  [[nodiscard]] Status adopt(int fd) override;
  [[nodiscard]] Status hand_in(int fd) override;
  [[nodiscard]] Status listen(int backlog) override;
  void close() override;
  void set_channel(std::shared_ptr<EventChannel> channel) override;
  [[nodiscard]] SocketAddress local_address() const override;

  void on_io(std::uint32_t events) override;
  void on_timer(io::TimerId id) override;

  // --- ListenerHost ---
  [[nodiscard]] bool carries() const noexcept override { return carries_; }
  [[nodiscard]] bool is_closed() const noexcept override { return closed_; }
  [[nodiscard]] std::shared_ptr<EventChannel> channel() const override;
  [[nodiscard]] bool request_ready(ConnectionImpl& connection) override;
  void request_settled() override;
  [[nodiscard]] std::shared_ptr<ConnectionImpl> forget_half_open(
      ConnectionImpl& connection) override;

 private:
  ListenerImpl(std::shared_ptr<DeviceImpl> device, ObjectCount counted,
               std::weak_ptr<EventChannel> channel)
      : device_(std::move(device)), object_(std::move(counted)), channel_(std::move(channel)) {}
  // The result of one look at the kernel's queue; all of it is used and let go of without mutex_.
  struct Look {
    std::shared_ptr<ConnectionImpl> connection;
    std::shared_ptr<ConnectionImpl> gives_way;  // to the newcomer
    std::shared_ptr<EventChannel> channel;
    bool alone = false;      // no other connection of the device is half-open
    bool inherited = false;  // see tuned_
    bool more = false;       // look again
  };
  [[nodiscard]] Status take_port(const SocketAddress& local, bool reuse_address, bool v6_only);
  [[nodiscard]] Status take_service(const SocketAddress& local, bool v6_only);
  [[nodiscard]] Status take_in(int fd);
  [[nodiscard]] Result<os::Fd> open_listening(const SocketAddress& local, bool reuse,
                                              bool v6_only) const;
  [[nodiscard]] Result<os::Fd> choose_service(const SocketAddress& local, bool v6_only)
      WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool accept_one();
  [[nodiscard]] bool gave_way() const;
  [[nodiscard]] Look look() WEFT_REQUIRES(mutex_);
  [[nodiscard]] Look no_socket(Error why) WEFT_REQUIRES(mutex_);
  [[nodiscard]] Look out_of_descriptors() WEFT_REQUIRES(mutex_);
  void pause() WEFT_REQUIRES(mutex_);
  void add_half_open(const std::shared_ptr<ConnectionImpl>& connection, const SocketAddress& peer)
      WEFT_REQUIRES(mutex_);
  std::shared_ptr<ConnectionImpl> remove_half_open(const ConnectionImpl* who) WEFT_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<ConnectionImpl> take_half_open(
      const std::shared_ptr<EventChannel>& channel, os::Fd socket, const SocketAddress& peer)
      WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool may_accept() const WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool backlog_is_full() const WEFT_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<ConnectionImpl> next_held();
  void report_held_soon();
  void report_held();
  void look_again_at(Instant when) WEFT_REQUIRES(mutex_);
  void update_watch() WEFT_REQUIRES(mutex_);

  const std::shared_ptr<DeviceImpl> device_;
  const ObjectCount object_;
  mutable os::Mutex mutex_;
  std::weak_ptr<EventChannel> channel_ WEFT_GUARDED_BY(mutex_);
  os::Fd socket_ WEFT_GUARDED_BY(mutex_);
  os::Fd spare_ WEFT_GUARDED_BY(
      mutex_);  // given up for a moment to refuse a connection when there are no others
  SocketAddress local_ WEFT_GUARDED_BY(mutex_);
  SocketAddress bound_
      WEFT_GUARDED_BY(mutex_);  // the same with TCP's port; unspecified: taken over
  std::shared_ptr<ServicePort> service_ WEFT_GUARDED_BY(mutex_);  // null: a plain TCP port
  bool v6_only_ WEFT_GUARDED_BY(mutex_) = false;
  // Its connections inherit what io::tune_listening() sets; not those of a socket taken over, which
  // may have been there before.
  bool tuned_ WEFT_GUARDED_BY(mutex_) = false;
  std::atomic<bool> carries_{false};
  std::atomic<bool> closed_{false};
  bool listening_ WEFT_GUARDED_BY(mutex_) = false;
  bool watching_ WEFT_GUARDED_BY(mutex_) = false;
  bool paused_ WEFT_GUARDED_BY(mutex_) = false;  // the kernel cannot accept: a timer looks again
  bool crowded_ WEFT_GUARDED_BY(mutex_) =
      false;  // newcomers wait until the oldest has had its time
  bool refusing_ WEFT_GUARDED_BY(mutex_) = false;  // out of descriptors, and that was said
  // A silent connection has given its descriptor up, and no newcomer has got it yet.
  bool gave_way_ WEFT_GUARDED_BY(mutex_) = false;
  io::TimerId timer_ WEFT_GUARDED_BY(mutex_) = 0;
  std::size_t backlog_ WEFT_GUARDED_BY(mutex_) = 0;
  std::size_t undelivered_ WEFT_GUARDED_BY(mutex_) = 0;
  HalfOpen<ConnectionImpl> held_ WEFT_GUARDED_BY(mutex_);       // half-open, with their Requests
  HalfOpen<ConnectionImpl> half_open_ WEFT_GUARDED_BY(mutex_);  // the device has them all
};

}  // namespace weft::verbs
