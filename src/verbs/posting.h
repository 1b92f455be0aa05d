// The parts of posting, for queue pairs of every type and for shared receive queues.
#pragma once

#include <weft/queue_pair.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "proto/work.h"

namespace weft::verbs {

// The request is in the queue. Posts return an Error in a register, not a Status: that is stored in
// pieces and read back whole, which the CPU cannot forward.
inline constexpr Error kTaken{};

// Whether queues of these sizes may be asked for at all.
[[nodiscard]] bool caps_legal(const QpOptions& options);

// Whether a queue pair in this state takes sends.   kBadState
[[nodiscard]] inline Error may_send(QpState state) noexcept {
  const bool early = state == QpState::kReset || state == QpState::kInit || state == QpState::kRtr;
  return early ? Error::kBadState : kTaken;
}

// Whether a queue pair in this state takes `count` receives of its own.
//   kInvalidArgument   it has a shared receive queue
//   kBadState          the state
//   kNoSpace           it was made without receives
[[nodiscard]] inline Error may_receive(QpState state, bool shared, const QpCaps& caps,
                                       std::size_t count) noexcept {
  if (shared) return Error::kInvalidArgument;
  if (state == QpState::kReset) return Error::kBadState;
  return caps.max_recv_wr == 0 && count != 0 ? Error::kNoSpace : kTaken;
}

// Gives each request to `queue` until that refuses one, and says how many it took.
template <class Wr, class Queue>
[[nodiscard]] inline Posted post_each(std::span<const Wr> wrs, Queue queue) {
  Posted posted;
  for (const Wr& wr : wrs) {
    posted.error = queue(wr);
    if (posted.error != kTaken) break;
    ++posted.count;
  }
  return posted;
}

// Payload of a request: inline data is copied, SGEs are noted. Error{}: done. Inline, since every
// post comes here.
//   kInvalidArgument   longer than `length_max`, or than the queue pair's capabilities allow
[[nodiscard]] inline Error fill_payload(const SendWr& wr, const QpCaps& caps,
                                        std::uint64_t length_max, proto::SendWqe& wqe) {
  std::uint64_t total = 0;
  for (const Sge& sge : wr.sges) total += sge.length;
  if (total > length_max) return Error::kInvalidArgument;
  wqe.length = static_cast<std::uint32_t>(total);
  if (has(wr.flags, SendFlags::kInline)) {
    if (total > caps.max_inline_bytes) return Error::kInvalidArgument;
    std::uint8_t* to = wqe.inline_data();
    for (const Sge& sge : wr.sges) {
      if (sge.length == 0) continue;
      // The verbs carry addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
      std::memcpy(to, reinterpret_cast<const void*>(static_cast<std::uintptr_t>(sge.addr)),
                  sge.length);
      to += sge.length;
    }
    return Error{};
  }
  if (wr.sges.size() > caps.max_send_sge) return Error::kInvalidArgument;
  wqe.sge_count = static_cast<std::uint8_t>(wr.sges.size());
  std::copy(wr.sges.begin(), wr.sges.end(), wqe.sges());
  return Error{};
}

// Room for what `options` ask for; `caps` says how much. Once, before use.   kNoMemory
[[nodiscard]] Status allocate_receives(const QpOptions& options, QpCaps& caps,
                                       proto::RecvQueue& queue);

// Queues receives until one is refused. A slot is free when `freed` has passed it; null: when its
// receive has been taken. REQUIRES: the queue has room for max_sge SGEs behind each WQE, and the
// caller holds the lock of its producers.
//   kNoSpace           the queue is full
//   kInvalidArgument   more than max_sge SGEs, or 2^32 bytes and more in all
[[nodiscard]] Posted queue_receives(std::span<const RecvWr> wrs, std::uint32_t max_sge,
                                    proto::RecvQueue& queue,
                                    const std::atomic<std::uint32_t>* freed);

// Copies a WQE with its SGEs. REQUIRES: `to` has room for as many.
void copy_recv(const proto::RecvWqe& from, proto::RecvWqe& to);

}  // namespace weft::verbs
