// Memory windows, and the operations of a send queue or a peer that change what an STag allows.
#pragma once

#include <weft/memory.h>
#include <weft/types.h>

#include <atomic>
#include <memory>

#include "proto/stag_table.h"
#include "proto/violation.h"
#include "proto/work.h"
#include "verbs/pd.h"

namespace weft::verbs {

// Any thread. Type 1: valid for every stream of the domain, each bind gets a new key from us, may
// be bound again while bound. Type 2: valid for the stream whose queue bound it, the consumer
// chooses the key, must be invalidated before it is bound again.
class MemoryWindowImpl final : public MemoryWindow {
 public:
  [[nodiscard]] static Result<std::shared_ptr<MemoryWindowImpl>> create(
      std::shared_ptr<ProtectionDomainImpl> pd, Type type);
  ~MemoryWindowImpl() override;

  [[nodiscard]] Type type() const override { return type_; }
  [[nodiscard]] std::uint32_t rkey() const override {
    return stag_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool bound() const override;

  [[nodiscard]] const std::shared_ptr<ProtectionDomainImpl>& pd() const { return pd_; }

 private:
  friend Status prepare_bind(const SendWr& wr, ProtectionDomainImpl& pd, proto::SendWqe& wqe);
  friend WcStatus execute_bind(ProtectionDomainImpl& pd, proto::StreamId id, proto::SendWqe& wqe);

  MemoryWindowImpl(std::shared_ptr<ProtectionDomainImpl> pd, Type type, ObjectCount counted)
      : pd_(std::move(pd)), counted_(std::move(counted)), type_(type) {}
  [[nodiscard]] Status allocate();

  const std::shared_ptr<ProtectionDomainImpl> pd_;
  const ObjectCount counted_;
  const Type type_;
  // As allocated, which changes no more: only its index is meaningful. 0: it is not.
  Stag slot_;
  std::atomic<std::uint32_t> stag_{0};  // of the last bind posted; its index never changes
};

// Post time of SendOp::kBindWindow: checks the request and fills remote_stag, remote_to, length and
// bind_args(). The window's rkey() is the new one from now on.
//   kInvalidArgument   no window, of another domain, wrong index in rkey (type 2), no region for a
//                      length, remote write or atomic rights asked that the region lacks...
[[nodiscard]] Status prepare_bind(const SendWr& wr, ProtectionDomainImpl& pd, proto::SendWqe& wqe);

// In its turn in the send queue. kSuccess or kWindowBind.
[[nodiscard]] WcStatus execute_bind(ProtectionDomainImpl& pd, proto::StreamId id,
                                    proto::SendWqe& wqe);
// SendOp::kLocalInvalidate of wqe.remote_stag: a region of the domain without windows, or a type 2
// window bound to this stream. kSuccess or kWindowBind.
[[nodiscard]] WcStatus execute_local_invalidate(ProtectionDomainImpl& pd, proto::StreamId id,
                                                const proto::SendWqe& wqe);
// A Send with Invalidate arrived (RFC 5040 5.3). A window may be invalidated by the stream it is
// bound to; a region if it has kRemoteInvalidate, its domain has no other QP and no window is bound
// to it. kNone (also if it was invalid already), kInvalidateProtection or kInvalidateOperation.
[[nodiscard]] proto::Violation execute_remote_invalidate(ProtectionDomainImpl& pd,
                                                         proto::StreamId id, Stag stag);

}  // namespace weft::verbs
