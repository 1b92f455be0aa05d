#include "proto/stream_requests.h"

namespace weft::proto {

bool InboundRequests::allocate() noexcept {
  if (list_ == nullptr) list_ = make_array<InboundRequest>(nullptr, mask_ + 1);
  return list_ != nullptr;
}

bool InboundRequests::allocate(Arena& memory) noexcept {
  list_ = make_array<InboundRequest>(&memory, mask_ + 1);
  return list_ != nullptr;
}

bool OutstandingReads::allocate() noexcept {
  if (list_ == nullptr) list_ = make_array<Outstanding>(nullptr, mask_ + 1);
  return list_ != nullptr;
}

bool OutstandingReads::allocate(Arena& memory) noexcept {
  list_ = make_array<Outstanding>(&memory, mask_ + 1);
  return list_ != nullptr;
}

bool OutstandingReads::awaits(const DdpTagged& h, std::uint32_t payload) const noexcept {
  for (std::uint32_t i = 0; i < count_; ++i) {
    const Outstanding& o = at(i);
    if (o.is_rtr || o.is_atomic || o.cursor.left != 1) continue;
    if (h.stag != o.sink_stag || h.stag != Stag{o.cursor.sge->lkey}) continue;
    const std::uint64_t into = h.to - o.sink_to;
    if (into >= o.received && into <= o.length && payload <= o.length - into) return true;
  }
  return false;
}

}  // namespace weft::proto
