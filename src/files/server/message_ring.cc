#include "files/server/message_ring.h"

#include <algorithm>
#include <cassert>

#include "files/server/work_ids.h"

namespace weft::files {

int MessageRing::open(ibv_qp* qp, std::uint8_t* memory, std::uint32_t lkey) {
  assert(qp_ == nullptr && qp != nullptr);
  qp_ = qp;
  memory_ = memory;
  lkey_ = lkey;
  for (std::size_t slot = 0; slot < kCredits; ++slot) {
    const int error = post_receive(qp_, work_id(WorkKind::kReceive, slot),
                                   memory_ + slot * kMessageBytes, kMessageBytes, lkey_);
    if (error != 0) return error;
  }
  for (std::size_t slot = 0; slot < kReplySlots; ++slot) free_.push_back(slot);
  return 0;
}

int MessageRing::take(std::size_t slot, std::span<std::uint8_t> to) {
  assert(qp_ != nullptr && slot < kCredits && to.size() <= kMessageBytes);
  std::uint8_t* const at = memory_ + slot * kMessageBytes;
  std::copy_n(at, to.size(), to.data());
  return post_receive(qp_, work_id(WorkKind::kReceive, slot), at, kMessageBytes, lkey_);
}

std::span<std::uint8_t> MessageRing::room() const {
  if (free_.empty()) return {};
  return {reply_at(free_.back()), kMessageBytes};
}

int MessageRing::send(std::size_t bytes) {
  assert(qp_ != nullptr && !free_.empty() && bytes <= kMessageBytes);
  const std::size_t slot = free_.back();
  free_.pop_back();
  return post_send(qp_, work_id(WorkKind::kReply, slot), reply_at(slot),
                   static_cast<std::uint32_t>(bytes), lkey_);
}

void MessageRing::sent(std::size_t slot) {
  assert(slot < kReplySlots && free_.size() < kReplySlots);
  free_.push_back(slot);
}

}  // namespace weft::files
