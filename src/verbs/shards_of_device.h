// Which shards a device has, and on which background thread each is at home. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "io/engine.h"
#include "os/lock.h"
#include "progress/host.h"
#include "progress/shard.h"

namespace weft::verbs {

class CompletionQueueImpl;

class ShardsOfDevice {
 public:
  using Homes = std::span<const std::unique_ptr<io::Engine>>;

  // As DeviceImpl::shard_for().   kSystem
  [[nodiscard]] Result<std::shared_ptr<progress::Shard>> take(
      const std::shared_ptr<progress::ProgressHost>& host, Homes homes,
      CompletionQueueImpl& recv_cq, CompletionQueueImpl& send_cq);
  [[nodiscard]] std::vector<std::shared_ptr<progress::Shard>> live();
  void doubt_callers();

 private:
  [[nodiscard]] Result<std::shared_ptr<progress::Shard>> create(
      const std::shared_ptr<progress::ProgressHost>& host, Homes homes) WEFT_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<progress::Shard> least_used() const WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool may_have_another() WEFT_REQUIRES(mutex_);

  os::Mutex mutex_;  // before a channel's
  std::vector<std::weak_ptr<progress::Shard>> all_ WEFT_GUARDED_BY(mutex_);
  std::size_t next_home_ WEFT_GUARDED_BY(mutex_) = 0;
  // As many as the limit of descriptors allowed, and as there were, when it was asked for last.
  std::size_t most_ WEFT_GUARDED_BY(mutex_) = 0;
  std::size_t there_were_ WEFT_GUARDED_BY(mutex_) = 0;
};

// When batches are short, and for how long a peer must have taken nothing to lose its connection.
class BatchShortage {
 public:
  // Any thread. True: something is to be done about it now.
  [[nodiscard]] bool note(Instant now) noexcept;
  // The background thread's: the least time that a lane must be stalled to be ended. It falls while
  // the shortage goes on.
  [[nodiscard]] Duration limit(Instant now) noexcept;
  void lower_limit() noexcept;

 private:
  std::atomic<std::int64_t> noted_{0};  // as Instant
  Instant relieved_;
  Duration stalled_min_{0};
};

}  // namespace weft::verbs
