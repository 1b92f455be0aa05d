#include "rsockets/rs_receive_ring.h"

#include <algorithm>

namespace weft::rsockets {

void RsReceiveRing::open(std::size_t bytes, std::uint16_t messages) {
  assert(bytes_ == 0 && bytes != 0 && bytes % 2 == 0 && messages != 0);
  bytes_ = bytes;
  lengths_.resize(messages);
  promised_ = half_at_ = free_ = half();
  credited_seq_ = static_cast<std::uint16_t>(messages / 2);
}

bool RsReceiveRing::announced(std::uint32_t length) {
  if (length == 0 || length > promised_ || count_ == lengths_.size()) return false;
  promised_ -= length;
  lengths_[(first_ + count_) % lengths_.size()] = length;
  ++count_;
  unread_ += length;
  arrived_ += length;
  check();
  return true;
}

void RsReceiveRing::taken(std::size_t count) {
  assert(count <= unread_);
  read_at_ = (read_at_ + count) % bytes_;
  unread_ -= count;
  free_ += count;
  check();
  for (std::size_t left = count; left > 0;) {
    assert(count_ != 0);  // their lengths are unread_
    std::uint32_t& length = lengths_[first_];
    const auto taken = static_cast<std::uint32_t>(std::min<std::size_t>(left, length));
    length -= taken;
    left -= taken;
    if (length != 0) break;
    first_ = (first_ + 1) % lengths_.size();
    --count_;
    ++read_seq_;
  }
}

void RsReceiveRing::half_offered() {
  assert(has_half());
  free_ -= half();
  promised_ += half();
  half_at_ = half_at_ == 0 ? half() : 0;
  check();
}

}  // namespace weft::rsockets
