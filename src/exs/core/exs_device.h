// An RDMA device as libexs uses it: a protection domain, and completion queues shared by groups of
// sockets. All of them report to one completion channel, on which the progress thread sleeps.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "os/lock.h"

namespace weft::exs {

inline constexpr int kShardEntries = 16384;    // of one completion queue, if the device has as many
inline constexpr int kCompletionsAtOnce = 32;  // polled
inline constexpr int kRoundsOfAFullQueue = kShardEntries / kCompletionsAtOnce;

// The completion queue of some sockets. Thread-safe: its counters are atomic, the CQ is verbs'.
struct CqShard {
  ~CqShard();
  ibv_cq* cq = nullptr;
  std::atomic<int> free_entries{0};
  std::atomic<bool> armed{false};
};

class Device {
 public:
  // Null, with errno.
  static std::shared_ptr<Device> create(ibv_context* context);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_comp_channel* channel() const { return channel_; }
  [[nodiscard]] const ibv_device_attr& attributes() const { return attributes_; }
  // The memory that a Read fills is named to the peer, and has to be writable by it: so with iWARP
  // adapters, whose responses are tagged messages like any other.
  [[nodiscard]] bool read_sink_is_remote() const { return read_sink_is_remote_; }

  // A shard with room for `entries` more completions. Null, with errno.
  CqShard* take_shard(int entries);
  static void give_back(CqShard* shard, int entries) {
    assert(shard != nullptr && entries > 0);
    shard->free_entries.fetch_add(entries);
  }

  // Calls `visit` for each shard. They only ever become more.
  template <class Visit>
  void each_shard(Visit visit) {
    const std::size_t count = shard_count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) visit(*shards_[i]);
  }

 private:
  Device() = default;
  static constexpr std::size_t kShardsMax = 1024;

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_device_attr attributes_{};
  bool read_sink_is_remote_ = false;
  os::Mutex mutex_;  // one change of shards_ at a time; readers go by shard_count_
  std::vector<std::unique_ptr<CqShard>> shards_;  // never moves: reserved in full
  std::atomic<std::size_t> shard_count_{0};
};

}  // namespace weft::exs
