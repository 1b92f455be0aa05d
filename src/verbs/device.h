// The device: everything that its objects share.
//
// Every object made from a device holds a shared_ptr to it, so it is the last to go. All members
// may be called from any thread. After fork() the child finds usable() false: no lock of this
// object may be taken there, and destructors free memory but change nothing that the parent shares.
#pragma once

#include <weft/device.h>
#include <weft/limits.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "io/counters_page.h"
#include "io/engine.h"
#include "os/cores.h"
#include "os/fork.h"
#include "os/lock.h"
#include "os/log.h"
#include "os/signal_queue.h"
#include "progress/host.h"
#include "progress/rings.h"
#include "progress/shard.h"
#include "proto/counters.h"
#include "proto/stag_table.h"
#include "trace/pcap.h"
#include "verbs/half_open.h"
#include "verbs/pools.h"
#include "verbs/refused_peers.h"

namespace weft::verbs {

class CompletionQueueImpl;
class MemoryWindowImpl;
class PeerWatch;
class PeerDirectory;

// Adds its counters to a sum: a QP, a CQ. Any thread, at any time between add and remove.
class CounterSource {
 public:
  virtual ~CounterSource() = default;
  virtual void add_counters(Counters& sum) const = 0;
};

enum class ObjectKind : std::uint8_t {
  kPd,
  kCq,
  kChannel,
  kQp,
  kSrq,
  kRegion,
  kWindow,
  kConnection,
  kListener
};
inline constexpr std::size_t kObjectKinds = 9;

class DeviceImpl final : public Device, public progress::ProgressHost {
 public:
  [[nodiscard]] static Result<std::shared_ptr<DeviceImpl>> create(const Config& config);
  ~DeviceImpl() override;

  // --- Device ---
  [[nodiscard]] const Config& config() const override { return config_; }
  [[nodiscard]] std::string_view name() const override { return "weft0"; }
  [[nodiscard]] Result<std::shared_ptr<ProtectionDomain>> create_pd() override;
  [[nodiscard]] Result<std::shared_ptr<CompletionChannel>> create_channel() override;
  [[nodiscard]] Result<std::shared_ptr<CompletionQueue>> create_cq(const CqOptions&) override;
  [[nodiscard]] Result<std::shared_ptr<Connection>> create_connection(
      std::shared_ptr<EventChannel> channel) override;
  [[nodiscard]] Result<std::shared_ptr<Listener>> create_listener(
      std::shared_ptr<EventChannel> channel) override;
  [[nodiscard]] int async_fd() const override { return async_events_->fd(); }
  [[nodiscard]] Result<AsyncEvent> next_async_event(
      std::optional<std::chrono::nanoseconds> timeout) override;
  void set_async_sink(std::function<void(const AsyncEvent&)> sink) override;
  [[nodiscard]] Counters counters() const override;
  [[nodiscard]] std::size_t users() const override;

  // --- for its objects ---

  // False in a child of fork(): every call of every object answers kBadState.
  [[nodiscard]] bool usable() const noexcept override { return !fork_.forked(); }
  [[nodiscard]] std::shared_ptr<DeviceImpl> self();

  // The background thread of set-up, listeners and the device's own timers.
  [[nodiscard]] io::Engine& engine() noexcept { return *engines_.front(); }
  [[nodiscard]] trace::Tracer* tracer() noexcept { return tracer_.get(); }  // null: tracing is off
  [[nodiscard]] BatchPool& batches() noexcept { return batches_; }
  [[nodiscard]] CarryBuffers& carries() noexcept { return carries_; }

  // Lookups from any thread; changes with stag_mutex() held.
  [[nodiscard]] proto::StagTable& stags() noexcept override { return stags_; }
  [[nodiscard]] std::mutex& stag_mutex() noexcept { return stag_mutex_; }
  // Windows by STag index, so that a bind in a send queue finds its object. With stag_mutex() held.
  [[nodiscard]] std::unordered_map<std::uint32_t, MemoryWindowImpl*>& windows() noexcept {
    return windows_;
  }

  // One more object of a kind; release() when it is gone.   kLimitExceeded, kBadState (forked)
  [[nodiscard]] Status acquire(ObjectKind kind);
  void release(ObjectKind kind) noexcept;
  [[nodiscard]] std::size_t count(ObjectKind kind) const noexcept;

  // Numbers of PDs and SRQs: 24 bits, never 0, reused late. free_number() when it is gone.
  [[nodiscard]] std::uint32_t take_number();
  void free_number(std::uint32_t number);
  // Likewise of QPs; with personality roce they say where the QP is found.
  //   as PeerDirectory::take_number()
  [[nodiscard]] Result<std::uint32_t> take_qp_number();
  void free_qp_number(std::uint32_t number);
  // Where wired QPs find each other. Null: personality iwarp.
  [[nodiscard]] PeerDirectory* peer_directory() noexcept { return peer_directory_.get(); }

  // `source` counts in counters() until it is removed, when its last values are kept.
  void add_source(const CounterSource* source);
  void remove_source(const CounterSource* source);

  // Queues an event, or hands it to the sink. If limits::kAsyncEvents wait, the event is lost and
  // the log says so. Takes no lock of the caller's: may be called with QP or CQ locks held, since
  // sinks may not call back into the engine.
  void raise(AsyncEvent event);

  // A set-up that ended, for the counters; a refused one also gets a line in the log
  // (rate-limited).
  void note_opened() noexcept { opened_.fetch_add(1, std::memory_order_relaxed); }
  void note_refused(LogLevel level, std::string_view who, std::string_view why);

  // --- shards ---

  // For a queue pair that delivers to these: the receive CQ's shard, or the send CQ's if that has
  // none yet, or a new one, at home on one of the background threads in turn. From now on it feeds
  // both.   kSystem
  [[nodiscard]] Result<std::shared_ptr<progress::Shard>> shard_for(CompletionQueueImpl& recv_cq,
                                                                   CompletionQueueImpl& send_cq);
  void check_peers(Instant now);

  // --- ProgressHost ---
  [[nodiscard]] const Config& settings() const noexcept override { return config_; }
  void note_without_batch() override;
  [[nodiscard]] std::uint64_t ticks_per_us() const noexcept override { return ticks_per_us_; }
  [[nodiscard]] unsigned cores() const noexcept override { return cores_; }
  [[nodiscard]] const os::Cores& machine_cores() const noexcept override { return machine_cores_; }
  void note_up(int delta) override;
  [[nodiscard]] progress::Rings& rings() noexcept override { return rings_; }
  [[nodiscard]] RefusedPeers& refused_peers() noexcept { return refused_peers_; }
  // Connections that want to know the TCP port of the same port of rdma_cm: one of them asks.
  [[nodiscard]] RefusedPeers& asking_peers() noexcept { return asking_peers_; }
  [[nodiscard]] HalfOpenOfDevice& half_open() noexcept { return half_open_; }
  [[nodiscard]] int up() const noexcept { return up_.load(std::memory_order_relaxed); }
  // Makes the counters page when the first connection or listener appears.
  void ensure_page();

 private:
  DeviceImpl(const Config& config, std::uint64_t secret);
  [[nodiscard]] Status init();
  [[nodiscard]] Status create_engines();
  [[nodiscard]] Result<std::shared_ptr<progress::Shard>> new_shard() WEFT_REQUIRES(shards_mutex_);
  [[nodiscard]] std::vector<std::shared_ptr<progress::Shard>> live_shards();
  void send_when_the_process_exits();
  void end_stalled_lanes();
  void fill_page(io::CountersPage& page) const;

  const Config config_;
  const os::ForkGuard fork_;

  std::mutex stag_mutex_;
  proto::StagTable stags_;
  std::unordered_map<std::uint32_t, MemoryWindowImpl*> windows_;

  BatchPool batches_;
  CarryBuffers carries_;

  std::array<std::atomic<std::uint32_t>, kObjectKinds> counts_{};

  mutable os::Mutex registry_mutex_;
  std::uint32_t next_number_ WEFT_GUARDED_BY(registry_mutex_) = 0;
  std::unordered_set<std::uint32_t> numbers_ WEFT_GUARDED_BY(registry_mutex_);
  std::unordered_set<const CounterSource*> sources_ WEFT_GUARDED_BY(registry_mutex_);
  Counters retired_ WEFT_GUARDED_BY(registry_mutex_);

  os::Mutex async_mutex_;
  std::unique_ptr<os::SignalQueue<AsyncEvent>> async_events_;
  std::function<void(const AsyncEvent&)> async_sink_ WEFT_GUARDED_BY(async_mutex_);

  const std::uint64_t ticks_per_us_;
  const unsigned cores_;
  const os::Cores machine_cores_;
  os::Mutex shards_mutex_;  // before a channel's
  std::vector<std::weak_ptr<progress::Shard>> shards_ WEFT_GUARDED_BY(shards_mutex_);
  std::size_t next_home_ WEFT_GUARDED_BY(shards_mutex_) = 0;

  std::atomic<std::uint64_t> opened_{0}, refused_{0};
  std::atomic<int> up_{0};
  std::atomic<std::int64_t> last_shortage_{0};  // of batches, as Instant
  Instant last_relief_;                         // the background thread's, with the next
  Duration stalled_min_{0};
  progress::Rings rings_;
  RefusedPeers refused_peers_, asking_peers_;
  HalfOpenOfDevice half_open_;
  os::Mutex refused_mutex_;
  Instant refused_window_ WEFT_GUARDED_BY(refused_mutex_){};
  std::uint32_t refused_lines_ WEFT_GUARDED_BY(refused_mutex_) = 0;
  std::uint32_t refused_silent_ WEFT_GUARDED_BY(refused_mutex_) = 0;

  os::Mutex page_mutex_;
  bool page_tried_ WEFT_GUARDED_BY(page_mutex_) = false;
  std::unique_ptr<trace::Tracer> tracer_;
  std::unique_ptr<PeerWatch> peer_watch_;
  // Their threads end before what is above them goes.
  std::vector<std::unique_ptr<io::Engine>> engines_;
  std::unique_ptr<io::CountersPublisher> page_;
  std::unique_ptr<PeerDirectory> peer_directory_;
};

}  // namespace weft::verbs
