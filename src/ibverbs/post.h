// The data path: work requests from programs to the engine.
//
// These run on the program's thread without a lookup: the handle is trusted to be a live object of
// ours, or a destroyed one whose context leads elsewhere.
#pragma once

#include <infiniband/verbs.h>
#include <weft/types.h>

namespace weft::ibverbs {

int post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad);
// The same, for an observer: a request may be completed and polled before the call returns, and
// what is behind one that is refused is not looked at.
struct ToldOfSends {
  bool (*before)(ibv_qp* handle, const ibv_send_wr& wr);  // true: it is to be lost
  void (*refused)(ibv_qp* handle);                        // the last one
  // Null, or changes a request to what the engine knows. `sges`: room for kSgesPerRequest.
  void (*translate)(ibv_send_wr& wr, ibv_sge* sges);
};
int post_send_told(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad, const ToldOfSends& told);
int post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad);

// That of no region: a request with it fails before anything of it is sent.
inline constexpr std::uint32_t kNoKey = ~std::uint32_t{0};

[[nodiscard]] constexpr SendFlags send_flags(unsigned flags) {
  SendFlags out = SendFlags::kNone;
  if ((flags & IBV_SEND_SIGNALED) != 0) out = out | SendFlags::kSignaled;
  if ((flags & IBV_SEND_FENCE) != 0) out = out | SendFlags::kFence;
  if ((flags & IBV_SEND_SOLICITED) != 0) out = out | SendFlags::kSolicited;
  if ((flags & IBV_SEND_INLINE) != 0) out = out | SendFlags::kInline;
  return out;
}

}  // namespace weft::ibverbs
