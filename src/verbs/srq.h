// Shared receive queues.
#pragma once

#include <weft/queue_pair.h>

#include <atomic>
#include <memory>

#include "os/lock.h"
#include "proto/work.h"
#include "verbs/pd.h"

namespace weft::verbs {

// Any thread; one lock.
class SharedReceiveQueueImpl final : public SharedReceiveQueue,
                                     public std::enable_shared_from_this<SharedReceiveQueueImpl> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<SharedReceiveQueueImpl>> create(
      std::shared_ptr<ProtectionDomainImpl> pd, const SrqOptions& options);
  ~SharedReceiveQueueImpl() override;

  Posted post_recv(std::span<const RecvWr> wrs) override;
  [[nodiscard]] std::uint32_t posted() const override;
  [[nodiscard]] Status set_limit(std::uint32_t limit) override;
  [[nodiscard]] Status resize(std::uint32_t max_wr) override;
  [[nodiscard]] std::uint32_t max_wr() const override;
  [[nodiscard]] std::uint32_t max_sge() const override { return max_sge_; }
  [[nodiscard]] std::uint32_t limit() const override;
  [[nodiscard]] std::uint32_t number() const override { return number_.value(); }
  [[nodiscard]] void* context() const override { return context_; }
  [[nodiscard]] std::size_t users() const override {
    return users_.load(std::memory_order_relaxed);
  }

  // Takes the oldest receive into `out`, which has room for max_sge() SGEs behind it. False: none
  // is posted. Raises kSrqLimitReached once when fewer than limit() are left.
  [[nodiscard]] bool take(proto::RecvWqe& out);

  [[nodiscard]] const std::shared_ptr<ProtectionDomainImpl>& pd() const { return pd_; }
  void add_user() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }  // a QP
  void drop_user() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  SharedReceiveQueueImpl(std::shared_ptr<ProtectionDomainImpl> pd, const SrqOptions& options,
                         ObjectCount counted);
  void raise_limit();

  const std::shared_ptr<ProtectionDomainImpl> pd_;
  const ObjectCount counted_;
  const Number number_;
  const std::uint32_t max_sge_;
  void* const context_;
  std::atomic<std::size_t> users_{0};

  mutable os::Mutex mutex_;
  std::unique_ptr<proto::RecvQueue> ring_ WEFT_GUARDED_BY(mutex_);
  std::uint32_t limit_ WEFT_GUARDED_BY(mutex_) = 0;  // 0: off, or the event has been raised
};

}  // namespace weft::verbs
