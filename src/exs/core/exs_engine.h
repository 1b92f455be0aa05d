// The engine: one for the process. It polls completion queues and sockets, runs connection set-up
// and time limits.
//
// Who makes progress: a caller that waits for events, on its own thread. When no caller has done so
// for a few milliseconds, the progress thread arms everything and sleeps until there is work.
#pragma once

#include <rdma/rdma_cma.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "exs/core/exs_cm_channel.h"
#include "exs/core/exs_device_table.h"
#include "exs/core/exs_host.h"
#include "exs/core/exs_polls.h"
#include "exs/core/exs_socket.h"
#include "exs/core/exs_tables.h"
#include "exs/core/handles.h"
#include "os/fd.h"
#include "os/lock.h"

namespace weft::exs {

class Engine final : public SocketHost {
 public:
  // Made at the first call, never destroyed: its thread may outlive static objects. A child of
  // fork() has a new one: the former's thread, and what that was doing, stayed with the parent.
  static Engine& instance();

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts the progress thread when it does not run. 0 or an errno.
  int start();
  [[nodiscard]] bool started() const { return started_.load(std::memory_order_acquire); }

  // A caller is inside a call that makes progress, however long that takes.
  class Inside {
   public:
    explicit Inside(Engine& engine) : engine_(engine) {
      engine_.callers_inside_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Inside() {
      [[maybe_unused]] const int before =
          engine_.callers_inside_.fetch_sub(1, std::memory_order_relaxed);
      assert(before > 0);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Engine& engine_;
  };

  bool drive() override;
  // Returns once `queue` has `need` events or `until` has come: 0, or EINTR after a signal.
  int wait(EventQueue& queue, std::size_t need, Instant until, int strategy);
  // Has the progress thread take over at once, because the caller is about to sleep.
  void hand_over();

  // The sockets of this process, by descriptor.
  void add(const std::shared_ptr<Socket>& socket);
  [[nodiscard]] std::shared_ptr<Socket> find(int fd) const { return sockets_.find(fd); }
  void remove(int fd, const Socket* socket) override { sockets_.remove(fd, socket); }
  // Held while a plain socket of the application's is taken in. Before all other locks.
  os::Mutex take_in_mutex;
  // The application has closed the descriptor of `socket` by itself: ends the connection, later and
  // on the progress thread.
  void abandon_later(const std::shared_ptr<Socket>& socket);

  // RDMA.
  [[nodiscard]] bool has_rdma();
  // Says what answers a peer that asks for a connection; `listener` may be null. It is called by
  // the thread that makes progress, without any lock. REQUIRES: before the first rdma_listen().
  using OnRequest = void (*)(const std::shared_ptr<Socket>& listener, const CmEvent& event);
  void answer_requests(OnRequest answer) { on_request_.store(answer); }
  // Destroys an id whose QP is gone, later and on the progress thread.
  void destroy_later(rdma_cm_id* id);

  // TCP: edge-triggered reports for Socket::provider.
  int watch(int fd, const std::shared_ptr<Socket>& socket);
  // `fd` -1: the application has closed it, and its number is another's.
  void unwatch(int fd, std::uint32_t number);

  void schedule(const std::shared_ptr<Socket>& socket, Instant when) override;
  void reschedule(const std::shared_ptr<Socket>& socket, Instant former, Instant when) override;
  // How many times are scheduled.
  [[nodiscard]] std::size_t timers();
  void kick(const std::shared_ptr<PollWait>& wait) override { polls_.kick(wait); }
  // Evaluates what has been kicked. Never with a lock of a socket held.
  void run_polls() { polls_.run(); }

  CmChannel cm;
  ConnectionNumbers connections;
  DeviceTable devices;
  Handles<EventQueue> queues;
  Handles<Region> regions;

 private:
  Engine() = default;

  // The progress thread counts here: the drives by callers that it has seen, the ticks without any;
  // and whether rdma_cm may have something to tell.
  struct Rounds {
    std::uint64_t seen = 0;
    int quiet_ticks = 0;
    bool cm_events = true;
  };

  void run();  // the progress thread
  void run_once(Rounds& rounds);
  void wake_up() const;
  void arm();
  bool poll_devices() WEFT_REQUIRES(drive_mutex_);
  bool poll_shard(CqShard& shard);
  bool poll_tcp() WEFT_REQUIRES(drive_mutex_);
  bool tcp_is_due() WEFT_REQUIRES(drive_mutex_);
  void run_cm();
  void drain_before_end();
  void run_timers(Instant now);
  void reap();
  void drain_channels();
  bool sleep(bool armed);  // true: rdma_cm may have something to tell
  int spin(EventQueue& queue, std::size_t need, Instant until, Instant spin_until);

  os::Mutex start_mutex_;
  std::atomic<bool> started_{false};
  os::Fd wake_;
  os::Fd tcp_;
  std::atomic<OnRequest> on_request_{nullptr};
  bool probed_ WEFT_GUARDED_BY(start_mutex_) = false;
  std::atomic<int> tcp_sockets_{0};

  os::Mutex drive_mutex_;
  std::atomic<std::uint64_t> drives_{0};  // by callers
  std::atomic<int> callers_inside_{0};    // who post, or drive until they have their events
  // Since a look at TCP found something.
  std::uint32_t polls_without_tcp_ WEFT_GUARDED_BY(drive_mutex_) = 0;
  std::atomic<bool> hand_over_{false};
  std::atomic<bool> asleep_{false};  // armed, or about to be

  SocketTable sockets_;
  PollWaits polls_;

  os::Mutex later_mutex_;
  std::vector<rdma_cm_id*> dead_ids_ WEFT_GUARDED_BY(later_mutex_);
  std::vector<std::shared_ptr<Socket>> abandoned_ WEFT_GUARDED_BY(later_mutex_);
  std::multimap<Instant, std::weak_ptr<Socket>> timers_ WEFT_GUARDED_BY(later_mutex_);
};

}  // namespace weft::exs
