#include "proto/stream.h"

#include <algorithm>

namespace weft::proto {

StreamParams stream_params(const Negotiated& agreed, Duration nudge_wait,
                           Duration first_fpdu_wait) {
  StreamParams params;
  params.initiator = agreed.initiator;
  params.crc = agreed.crc;
  params.tx_markers = agreed.tx_markers;
  params.rx_markers = agreed.rx_markers;
  params.rtr = agreed.initiator && agreed.peer_to_peer ? agreed.rtr : RtrKind::kNone;
  params.startup_failure = agreed.startup_failure;
  params.ird = agreed.ird;
  params.ord = agreed.ord;
  if (agreed.initiator) {
    params.patience = nudge_wait;
  } else if (!agreed.peer_to_peer) {
    params.patience = first_fpdu_wait;
  }
  return params;
}

Stream::Stream(const StreamParams& params, StreamHost& host, const StagTable& table, SendQueue& sq)
    : StreamRx(params, host),
      StreamTx(params, host, sq),
      params_(params),
      host_(host),
      table_(table),
      sq_(sq),
      requests_(params.ird),
      reads_(params.ord),
      acks_(params.acks) {
  (void)machine_.on(StreamEvent::kEstablished);
}

void Stream::start() {
  if (params_.startup_failure) violate(*params_.startup_failure);
  if (machine_.state() == StreamState::kRts && params_.patience.count() != 0) {
    expire_at(host_.now() + params_.patience);
  }
}

void Stream::limit_outstanding(std::uint16_t most) noexcept {
  reads_.limit(std::min<std::uint32_t>(params_.ord, std::max<std::uint32_t>(most, 1)));
}

void Stream::expired(Instant now) {
  StreamRx::expired(now);
  refusal_.expired(now);
  StreamTx::expired(now);
  StreamShutdown::expired(now);
}

// As the table resolves it, and what this stream lets its peer do: rights come before bounds.
MemoryFault Stream::resolve_remote(Stag stag, std::uint64_t to, std::uint64_t length, Access need,
                                   Pin& pin, std::uint8_t*& at) {
  const MemoryFault fault = table_.resolve(stag, to, length, need, params_.id, pin, at, &rx_hint_);
  if (has(remote_access_.load(std::memory_order_relaxed), need)) return fault;
  const bool earlier = fault == MemoryFault::kInvalidStag || fault == MemoryFault::kNotOfStream;
  return earlier ? fault : MemoryFault::kNoRight;
}

}  // namespace weft::proto
