#include "ddp_side.h"

#include <algorithm>
#include <cstdlib>

#include "base/crc32c.h"
#include "wire/fpdu.h"

namespace weft::testing {

namespace {

// A stream that breaks its contract ends the test, and the fuzzer.
void need(bool what) {
  if (!what) std::abort();
}

bool untouched(std::span<const std::uint8_t> octets) {
  return std::all_of(octets.begin(), octets.end(),
                     [](std::uint8_t o) { return o == DdpSide::kFill; });
}

bool guards_intact(std::span<const std::uint8_t> octets) {
  return untouched(octets.first(DdpSide::kGuard)) && untouched(octets.last(DdpSide::kGuard));
}

}  // namespace

DdpSide::DdpSide(const proto::DdpParams& params, std::size_t memory_bytes)
    : memory_(memory_bytes + 2 * kGuard, kFill),
      stream_(std::make_unique<proto::DdpStream>(params, *this)) {}

DdpSide::~DdpSide() { stream_.reset(); }

// --- the program ---

Status DdpSide::post(proto::DdpMessage message, const Octets& octets) {
  messages_.push_back(octets);
  message.data = messages_.back().data();
  message.length = static_cast<std::uint32_t>(octets.size());
  const Status posted = stream_->post(message);
  if (!posted) messages_.pop_back();
  return posted;
}

Status DdpSide::send(const Octets& octets, std::uint32_t queue, std::uint8_t control) {
  proto::DdpMessage m;
  m.queue = queue;
  m.control = control;
  m.rsvd_ulp = control * 3U;
  return post(m, octets);
}

Status DdpSide::write(const Octets& octets, std::uint64_t to, std::uint8_t control, Stag stag) {
  proto::DdpMessage m;
  m.tagged = true;
  m.control = control;
  m.stag = stag;
  m.to = to;
  return post(m, octets);
}

void DdpSide::post_buffer(std::uint32_t size, std::uint32_t queue) {
  buffers_[queue].emplace_back(size);
}

// --- the transport ---

std::span<const std::uint8_t> DdpSide::offered(std::size_t max) {
  const proto::TxBatch* batch = stream_->gather();
  if (batch == nullptr) return {};
  const Slice& slice = batch->slices[batch->slice_next];
  return {slice.data, std::min(slice.size, max)};
}

Octets DdpSide::take(std::size_t n, bool hold) {
  Octets out;
  while (out.size() < n) {
    const std::span<const std::uint8_t> piece = offered(n - out.size());
    if (piece.empty()) break;
    out.insert(out.end(), piece.begin(), piece.end());
    held_ += piece.size();
    stream_->sent(piece.size());
    if (!hold) release_held();
  }
  return out;
}

void DdpSide::release_held() {
  const std::size_t n = held_;
  held_ = 0;
  stream_->released(n);
}

// --- the stream's host ---

proto::MemoryFault DdpSide::place(Stag stag, std::uint64_t to, proto::MarkedOctets payload) {
  need(!payload.empty() && !ended);
  if (stag == kForeignStag) return proto::MemoryFault::kNotOfStream;
  if (stag == kReadOnlyStag) return proto::MemoryFault::kNoRight;
  if (stag != kStag) return proto::MemoryFault::kInvalidStag;
  const std::size_t size = payload.size();
  if (size - 1 > ~std::uint64_t{0} - to) return proto::MemoryFault::kWrap;
  const std::size_t room = memory_.size() - 2 * kGuard;
  if (to < kBase || to - kBase > room || size > room - (to - kBase)) {
    return proto::MemoryFault::kBounds;
  }
  payload.move_to(memory_.data() + kGuard + (to - kBase), size);
  return proto::MemoryFault::kNone;
}

bool DdpSide::tagged_delivered(const DdpTagged& header) {
  need(!ended);
  if (takes_notifications) notified.push_back(header.ulp_ctrl);
  return takes_notifications;
}

bool DdpSide::take_buffer(std::uint32_t queue, std::span<std::uint8_t>& buffer) {
  need(!ended && queue < proto::kDdpQueuesMax && !open_[queue]);
  if (buffers_[queue].empty()) return false;
  open_[queue].emplace(std::move(buffers_[queue].front()));
  buffers_[queue].pop_front();
  buffer = open_[queue]->inner();
  return true;
}

void DdpSide::untagged_delivered(const DdpUntagged& header, std::uint32_t length) {
  need(!ended && open_[header.queue] && length <= open_[header.queue]->inner().size());
  Buffer& buffer = *open_[header.queue];
  const auto whole = buffer.inner();
  guards_broken_ =
      guards_broken_ || !guards_intact(buffer.octets) || !untouched(whole.subspan(length));
  got.push_back({header.queue, header.ulp_ctrl, header.rsvd_ulp,
                 Octets(whole.begin(), whole.begin() + length)});
  open_[header.queue].reset();
}

void DdpSide::message_released(bool sent) {
  need(!messages_.empty());
  ++(sent ? released_whole : released_unsent);
  std::fill(messages_.front().begin(), messages_.front().end(), kGone);
  messages_.pop_front();
}

void DdpSide::stream_ended(proto::DdpEnd how) {
  need(!ended && how != proto::DdpEnd::kOpen);
  ended = how;
}

std::uint8_t* DdpSide::acquire_carry(std::size_t size) {
  need(size <= proto::kCarryBytesMax);
  ++carries_out_;
  return new std::uint8_t[size];
}

void DdpSide::release_carry(std::uint8_t* carry, std::size_t /*size*/) {
  --carries_out_;
  delete[] carry;
}

proto::TxBatch* DdpSide::acquire_batch() {
  if (batches_out_ >= batches_max) return nullptr;
  ++batches_out_;
  return new proto::TxBatch;
}

void DdpSide::release_batch(proto::TxBatch* batch) {
  --batches_out_;
  delete batch;
}

bool DdpSide::intact() const {
  const bool all_back = !ended || (batches_out_ == 0 && carries_out_ == 0 && messages_.empty());
  return all_back && !guards_broken_ && guards_intact(memory_);
}

// --- FPDUs by hand ---

Octets fpdu(std::span<const std::uint8_t> ulpdu) {
  Octets out(fpdu_size(static_cast<std::uint32_t>(ulpdu.size())));
  store_ulpdu_length(out.data(), static_cast<std::uint16_t>(ulpdu.size()));
  std::copy(ulpdu.begin(), ulpdu.end(), out.begin() + kFpduLengthSize);
  const std::size_t covered = out.size() - kCrcSize;
  store_crc(out.data() + covered, crc32c({out.data(), covered}));
  return out;
}

namespace {

template <class Header>
Octets whole(const Header& header, const Octets& payload) {
  Octets ulpdu(Header::kSize);
  store_ddp(header, ulpdu.data());
  ulpdu.insert(ulpdu.end(), payload.begin(), payload.end());
  return fpdu(ulpdu);
}

}  // namespace

Octets fpdu(const DdpTagged& header, const Octets& payload) { return whole(header, payload); }
Octets fpdu(const DdpUntagged& header, const Octets& payload) { return whole(header, payload); }

}  // namespace weft::testing
