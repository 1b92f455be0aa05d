#include "exs/rdma/message_slots.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>

#include "exs/core/exs_messages.h"

namespace weft::exs {
namespace {

constexpr std::size_t kPostedTogether = 8;

}  // namespace

int MessageSlots::create(const std::shared_ptr<Device>& device, std::uint16_t count,
                         std::size_t immediate_bytes) {
  assert(count_ == 0 && count >= kSlotsMin);
  // A slot to send from may be as large as the peer's limit, which is known later. It is not larger
  // than our own limit.
  bytes_ = Header::kSize + std::max(immediate_bytes, kSegmentsMax * Segment::kSize);
  memory_ = Pages(2UL * count * bytes_);
  mr_ = Mr::create(device, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (!mr_) return errno;
  count_ = count;
  for (int i = count; i > 0; --i) free_.push_back(i - 1);
  return 0;
}

int MessageSlots::take() {
  assert(any_free());
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

std::uint8_t* MessageSlots::to_send(int slot) {
  assert(slot >= 0 && static_cast<std::uint32_t>(slot) < count_);
  return memory_.data() + (count_ + static_cast<std::size_t>(slot)) * bytes_;
}

std::span<const std::uint8_t> MessageSlots::received(std::uint32_t slot, std::size_t length) const {
  assert(slot < count_ && length <= bytes_);
  return {memory_.data() + slot * bytes_, length};
}

bool MessageSlots::post_all(ibv_qp* qp, std::uint32_t number) {
  assert(count_ != 0 && read_.empty());
  read_.reserve(count_);
  for (std::uint32_t i = 0; i < count_; ++i) read_.push_back(i);
  SlotCredits known;  // by the Hello
  if (!post_read(qp, number, known)) return false;
  assert(known.untold() == count_);
  // The peer has to have most of the slots all the time.
  post_every_ = std::min<std::size_t>(kPostedTogether, count_ / kSlotsMin);
  return true;
}

bool MessageSlots::read(std::uint32_t slot) {
  assert(slot < count_ && read_.size() < count_);
  read_.push_back(slot);
  return read_.size() >= post_every_;
}

bool MessageSlots::post_read(ibv_qp* qp, std::uint32_t number, SlotCredits& credits) {
  assert(read_.size() <= count_);
  std::array<ibv_recv_wr, kPostedTogether> wrs{};
  std::array<ibv_sge, kPostedTogether> sges;
  while (!read_.empty()) {
    const std::size_t count = std::min(read_.size(), wrs.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t slot = read_[read_.size() - count + i];
      sges[i] = {reinterpret_cast<std::uintptr_t>(memory_.data() + slot * bytes_),
                 static_cast<std::uint32_t>(bytes_), mr_.lkey()};
      wrs[i].wr_id = static_cast<std::uint64_t>(number) << 32U | kReceiveBit | slot;
      wrs[i].sg_list = &sges[i];
      wrs[i].num_sge = 1;
      wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp, wrs.data(), &bad) != 0) return false;
    read_.resize(read_.size() - count);
    credits.returned(static_cast<std::uint32_t>(count));
  }
  return true;
}

}  // namespace weft::exs
