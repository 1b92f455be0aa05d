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
#include <unordered_map>

#include "io/counters_page.h"
#include "io/engine.h"
#include "os/cores.h"
#include "os/fork.h"
#include "os/lock.h"
#include "os/log.h"
#include "os/ticks.h"
#include "progress/host.h"
#include "progress/rings.h"
#include "progress/shard.h"
#include "proto/counters.h"
#include "proto/stag_table.h"
#include "trace/pcap.h"
#include "verbs/async_events.h"
#include "verbs/counter_sources.h"
#include "verbs/half_open.h"
#include "verbs/kept_question.h"
#include "verbs/memory_of_device.h"
#include "verbs/number_pool.h"
#include "verbs/pools.h"
#include "verbs/random.h"
#include "verbs/refused_peers.h"
#include "verbs/setup_record.h"
#include "verbs/shards_of_device.h"

namespace weft::verbs {

class CompletionQueueImpl;
class MemoryWindowImpl;
class PeerWatch;
class PeerDirectory;

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

// The page that shows a device's counters to other processes.
class PageOfDevice {
 public:
  // Makes it, the first time. Where it can't be had, the log says so, and there is none.
  void ensure(io::Engine& engine, std::function<void(io::CountersPage&)> fill);
  void remove() {
    const os::MutexLock lock(mutex_);
    page_.reset();
  }

 private:
  os::Mutex mutex_;
  bool tried_ WEFT_GUARDED_BY(mutex_) = false;
  std::unique_ptr<io::CountersPublisher> page_ WEFT_GUARDED_BY(mutex_);
};

// The machine, as far as this process may use it.
struct MachineOfDevice {
  std::uint64_t ticks_per_us = os::ticks_per_us();
  unsigned cores = os::usable_cores();
  os::Cores all;
};

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
  [[nodiscard]] int async_fd() const override { return async_events_.fd(); }
  [[nodiscard]] Result<AsyncEvent> next_async_event(
      std::optional<std::chrono::nanoseconds> timeout) override {
    return async_events_.next(timeout);
  }
  void set_async_sink(std::function<void(const AsyncEvent&)> sink) override;
  void reuse_at_once() override {
    numbers_.reuse_at_once();
    const os::MutexLock lock(memory_.mutex);
    memory_.stags.reuse_at_once();
  }
  void caller_sleeps() override {
    if (usable()) shards_.doubt_callers();
  }
  [[nodiscard]] Counters counters() const override;
  [[nodiscard]] std::size_t users() const override;

  // --- for its objects ---

  // False in a child of fork(): calls of all objects answer kBadState, or do nothing.
  [[nodiscard]] bool usable() const noexcept override { return !fork_.forked(); }
  [[nodiscard]] std::shared_ptr<DeviceImpl> self();

  // The background thread of set-up, listeners and the device's own timers.
  [[nodiscard]] io::Engine& engine() noexcept { return *engines_.front(); }
  [[nodiscard]] trace::Tracer* tracer() noexcept { return tracer_.get(); }  // null: tracing is off
  [[nodiscard]] BatchPool& batches() noexcept { return batches_; }
  [[nodiscard]] CarryBuffers& carries() noexcept { return carries_; }

  // Lookups from any thread; changes with its mutex held.
  [[nodiscard]] MemoryOfDevice& memory() noexcept { return memory_; }
  [[nodiscard]] proto::StagTable& stags() noexcept override { return memory_.stags; }

  // One more object of a kind; release() when it is gone.   kLimitExceeded, kBadState (forked)
  [[nodiscard]] Status acquire(ObjectKind kind);
  void release(ObjectKind kind) noexcept;
  [[nodiscard]] std::size_t count(ObjectKind kind) const noexcept;

  // Numbers of PDs and SRQs: 24 bits, never 0, reused late. free_number() when it is gone.
  [[nodiscard]] std::uint32_t take_number() { return numbers_.take(); }
  void free_number(std::uint32_t number);
  // The same for QPs; with personality roce they say where the QP is found.
  //   as PeerDirectory::take_number()
  [[nodiscard]] Result<std::uint32_t> take_qp_number();
  void free_qp_number(std::uint32_t number);
  // Where wired QPs find each other. Null: personality iwarp.
  [[nodiscard]] PeerDirectory* peer_directory() noexcept { return peer_directory_.get(); }

  // `source` counts in counters() until it is removed, when its last values are kept.
  void add_source(const CounterSource* source) { sources_.add(source); }
  void remove_source(const CounterSource* source);

  void raise(AsyncEvent event);  // as AsyncEvents::raise()

  // A set-up that ended, for the counters; a refused one also gets a line in the log.
  void note_opened() noexcept { setups_.note_opened(); }
  void note_refused(LogLevel level, std::string_view who, std::string_view why) {
    setups_.note_refused(level, who, why);
  }

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
  [[nodiscard]] std::uint64_t ticks_per_us() const noexcept override {
    return machine_.ticks_per_us;
  }
  [[nodiscard]] unsigned cores() const noexcept override { return machine_.cores; }
  [[nodiscard]] const os::Cores& machine_cores() const noexcept override { return machine_.all; }
  void note_up(int delta) override;
  [[nodiscard]] progress::Rings& rings() noexcept override { return rings_; }
  [[nodiscard]] RefusedPeers& refused_peers() noexcept { return refused_peers_; }
  // Connections that want to know the TCP port of the same port of rdma_cm: one of them asks.
  [[nodiscard]] RefusedPeers& asking_peers() noexcept { return asking_peers_; }
  [[nodiscard]] KeptQuestion& kept_question() noexcept { return kept_question_; }
  [[nodiscard]] HalfOpenOfDevice& half_open() noexcept { return half_open_; }
  [[nodiscard]] int up() const noexcept { return up_.load(std::memory_order_relaxed); }
  // Makes the counters page when the first connection or listener appears.
  void ensure_page();

 private:
  DeviceImpl(const Config& config, std::uint64_t secret);
  [[nodiscard]] Status init();
  [[nodiscard]] Status create_engines();
  void send_when_the_process_exits();
  void end_stalled_lanes();
  void fill_page(io::CountersPage& page) const;

  const Config config_;
  const os::ForkGuard fork_;
  const MachineOfDevice machine_;

  MemoryOfDevice memory_;
  BatchPool batches_;
  CarryBuffers carries_;

  std::array<std::atomic<std::uint32_t>, kObjectKinds> counts_{};
  NumberPool numbers_;
  CounterSources sources_;
  AsyncEvents async_events_;
  SetupRecord setups_;

  ShardsOfDevice shards_;
  BatchShortage shortage_;
  std::atomic<int> up_{0};
  progress::Rings rings_;
  RefusedPeers refused_peers_, asking_peers_;
  KeptQuestion kept_question_;
  HalfOpenOfDevice half_open_;

  std::unique_ptr<trace::Tracer> tracer_;
  std::unique_ptr<PeerWatch> peer_watch_;
  // Their threads end before what is above them goes.
  std::vector<std::unique_ptr<io::Engine>> engines_;
  PageOfDevice page_;
  std::unique_ptr<PeerDirectory> peer_directory_;
};

}  // namespace weft::verbs
