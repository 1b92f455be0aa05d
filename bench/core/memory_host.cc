#include "memory_host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace weft::bench {

void MemoryHost::start(const proto::StreamParams& params) {
  if (!sq_.allocate(kQueueDepth, proto::kSendTailMin)) std::abort();
  stream_ = std::make_unique<proto::Stream>(params, *this, table_, sq_);
  stream_->start();
}

void MemoryHost::pump_to(MemoryHost& peer) {
  while (stream_->tx_pending()) {
    proto::TxBatch* batch = stream_->gather();
    if (batch == nullptr) return;
    std::size_t slice = batch->slice_next;
    std::size_t offset = 0;
    std::size_t total = 0;
    while (slice < batch->slice_count) {
      proto::RxPlan plan;
      peer.stream_->want(plan, peer.scratch_);
      std::size_t filled = 0;
      for (std::size_t i = 0; i < plan.count && slice < batch->slice_count; ++i) {
        std::size_t room = plan.slices[i].size;
        std::uint8_t* to = plan.slices[i].data;
        while (room != 0 && slice < batch->slice_count) {
          const Slice& from = batch->slices[slice];
          const std::size_t n = std::min(room, from.size - offset);
          std::memcpy(to, from.data + offset, n);
          to += n;
          room -= n;
          filled += n;
          offset += n;
          if (offset == from.size) {
            ++slice;
            offset = 0;
          }
        }
      }
      peer.stream_->arrived(filled);
      total += filled;
    }
    stream_->sent(total);
    stream_->released(total);
  }
}

}  // namespace weft::bench
