// The data calls of RsStream, and mapped memory.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "rsockets/rs_stream.h"

namespace weft::rsockets {
namespace {

constexpr std::uint64_t kDataRequest = 1ULL << 56U;  // as in rs_stream.cc
// One Write and its message. rdma-core begins with smaller ones, so that an adapter begins early;
// here each costs a system call.
constexpr std::size_t kPiece = 1U << 16U;
// Below this much free memory, a sender waits: tiny pieces cost as much as large ones.
constexpr std::size_t kLowWater = 2048;

}  // namespace

std::size_t RsStream::room() const {
  if (!started_ || down_ || targets_.empty() || requests_free_ < 2) return 0;
  const auto credits = static_cast<std::uint16_t>(allowed_seq_ - sent_seq_);
  // The last ones stay for messages that cost no credit at the peer, but a receive (H1). A credit
  // count above half of the range is a peer that takes credits back: then there are no credits
  // left.
  if (credits <= kCreditReserve || credits > 0x8000U + kCreditReserve) return 0;
  if (send_free_ < std::min(kLowWater, send_ring_.size() / 2)) return 0;
  return std::min<std::size_t>(send_free_, targets_.front().length);
}

bool RsStream::can_send() const { return room() > 0; }

std::size_t RsStream::send(std::span<const std::uint8_t> data) {
  std::size_t done = 0;
  while (done < data.size()) {
    const std::size_t n = std::min({data.size() - done, room(), kPiece});
    if (n == 0) break;
    RsSge& target = targets_.front();
    if (!post_piece(data.subspan(done, n), target.addr, target.key, true)) break;
    target.addr += n;
    target.length -= static_cast<std::uint32_t>(n);
    if (target.length == 0) targets_.pop_front();
    ++sent_seq_;
    done += n;
  }
  return done;
}

// An RDMA Write of `piece`, through the send ring unless it is small, and the message behind it.
bool RsStream::post_piece(std::span<const std::uint8_t> piece, std::uint64_t addr,
                          std::uint32_t key, bool with_message) {
  const auto length = static_cast<std::uint32_t>(piece.size());
  const bool small = length <= options_.inline_bytes;
  Sge parts[2];
  std::size_t part_count = 1;
  if (small) {
    parts[0] = {reinterpret_cast<std::uintptr_t>(piece.data()), length, 0};
  } else {
    const std::size_t first = std::min(piece.size(), send_ring_.size() - send_at_);
    std::memcpy(&send_ring_[send_at_], piece.data(), first);
    parts[0] = {reinterpret_cast<std::uintptr_t>(&send_ring_[send_at_]),
                static_cast<std::uint32_t>(first), send_region_->lkey()};
    if (first < piece.size()) {
      std::memcpy(send_ring_.data(), piece.data() + first, piece.size() - first);
      parts[1] = {reinterpret_cast<std::uintptr_t>(send_ring_.data()),
                  static_cast<std::uint32_t>(piece.size() - first), send_region_->lkey()};
      part_count = 2;
    }
  }
  const auto word = encode(RsMessage{RsOp::kData, length});
  const Sge message{reinterpret_cast<std::uintptr_t>(word.data()), RsMessage::kSize, 0};
  SendWr wrs[2];
  wrs[0].wr_id = kDataRequest | (small ? 0 : length);
  wrs[0].op = SendOp::kWrite;
  wrs[0].flags = small ? SendFlags::kInline : SendFlags::kNone;
  wrs[0].sges = std::span(parts, part_count);
  wrs[0].remote_addr = addr;
  wrs[0].rkey = key;
  wrs[1].wr_id = kDataRequest;
  wrs[1].flags = SendFlags::kInline;
  wrs[1].sges = std::span(&message, 1);
  const std::size_t wanted = with_message ? 2 : 1;
  assert(requests_free_ >= wanted && (small || length <= send_free_));
  const Posted posted = qp_->post_send(std::span<const SendWr>(wrs, wanted));
  data_outstanding_ += static_cast<std::uint32_t>(posted.count);
  requests_free_ -= static_cast<std::uint32_t>(posted.count);
  if (posted.count > 0 && !small) {
    send_at_ = (send_at_ + length) % send_ring_.size();
    send_free_ -= length;
  }
  if (posted.count == wanted) return true;
  down_ = true;
  return false;
}

std::size_t RsStream::receive(std::span<std::uint8_t> out, bool peek) {
  const std::size_t at = reading_.read_at();
  const std::size_t total = std::min(out.size(), reading_.unread());
  const std::size_t first = std::min(total, recv_ring_.size() - at);
  if (total == 0) return 0;
  std::memcpy(out.data(), &recv_ring_[at], first);
  std::memcpy(out.data() + first, recv_ring_.data(), total - first);
  if (peek) return total;
  reading_.taken(total);
  if (started_ && !down_) give_credit();
  return total;
}

// --- mapped memory ---

Status RsStream::map(void* addr, std::size_t length, bool writable, std::uint64_t offset) {
  Mapping mapping;
  mapping.addr = addr;
  mapping.length = length;
  mapping.remote = writable;
  if (writable) {
    const auto free = std::find(remote_slots_.begin(), remote_slots_.end(), false);
    if (free == remote_slots_.end()) return fail(Error::kNoSpace);
    mapping.slot = static_cast<std::uint16_t>(free - remote_slots_.begin());
  }
  const Access access = writable ? Access::kLocalWrite | Access::kRemoteWrite : Access::kLocalWrite;
  auto region = pd_->register_memory(addr, length, access);
  if (!region) return fail(region.error());
  mapping.region = std::move(*region);
  if (writable) {
    remote_slots_[mapping.slot] = true;
    const RsSge sge{mapping.region->iova(), mapping.region->rkey(),
                    static_cast<std::uint32_t>(length)};
    pending_maps_.emplace_back(mapping.slot, RsIomap{offset, sge});
  }
  mappings_.push_back(std::move(mapping));
  send_pending_maps();
  return {};
}

// The peer is not told, and a late Write to a region that is gone would end the connection: the
// peer has to be told by other means first, as with rdma-core (H9).
Status RsStream::unmap(void* addr, std::size_t length) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& m) {
    return m.addr == addr && m.length == length;
  });
  if (found == mappings_.end()) return fail(Error::kNotFound);
  if (found->remote) {
    std::erase_if(pending_maps_, [&](const auto& p) { return p.first == found->slot; });
    remote_slots_[found->slot] = false;
  }
  mappings_.erase(found);
  return {};
}

void RsStream::send_pending_maps() {
  while (started_ && !down_ && !pending_maps_.empty() && requests_free_ >= 2) {
    const auto credits = static_cast<std::uint16_t>(allowed_seq_ - sent_seq_);
    if (credits <= kCreditReserve || credits > 0x8000U + kCreditReserve) return;
    const auto [slot, entry] = pending_maps_.front();
    std::array<std::uint8_t, RsIomap::kSize> bytes{};
    store_iomap(bytes.data(), entry);
    const std::uint64_t at =
        remote_sgl_ + RsSge::kSize * std::uint64_t{remote_entries_} + RsIomap::kSize * slot;
    const auto word = encode(RsMessage{RsOp::kIomap, slot});
    const Sge parts[2] = {{reinterpret_cast<std::uintptr_t>(bytes.data()), RsIomap::kSize, 0},
                          {reinterpret_cast<std::uintptr_t>(word.data()), RsMessage::kSize, 0}};
    SendWr wrs[2];
    wrs[0].op = SendOp::kWrite;
    wrs[0].remote_addr = at;
    wrs[0].rkey = remote_key_;
    for (std::size_t i = 0; i < 2; ++i) {
      wrs[i].wr_id = kDataRequest;
      wrs[i].flags = SendFlags::kInline;
      wrs[i].sges = std::span(&parts[i], 1);
    }
    const Posted posted = qp_->post_send(std::span<const SendWr>(wrs));
    data_outstanding_ += static_cast<std::uint32_t>(posted.count);
    requests_free_ -= static_cast<std::uint32_t>(posted.count);
    if (posted.count != 2) {
      down_ = true;
      return;
    }
    // rdma-core never counts an IOMAP message as read: counting it here would lose the credit.
    if (peer_is_weft_) ++sent_seq_;
    pending_maps_.pop_front();
  }
}

bool RsStream::mapped(std::uint64_t offset) const {
  for (std::size_t i = 0; i < options_.iomap_count; ++i) {
    const RsIomap entry = load_iomap(&tables_[RsSge::kSize * kSglEntries + RsIomap::kSize * i]);
    if (entry.sge.length != 0 && offset >= entry.offset &&
        offset - entry.offset < entry.sge.length) {
      return true;
    }
  }
  return false;
}

std::size_t RsStream::write_mapped(std::span<const std::uint8_t> data, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < data.size() && started_ && !down_ && requests_free_ >= 1 && send_free_ > 0) {
    const std::uint64_t at = offset + done;
    RsIomap entry;
    bool found = false;
    for (std::size_t i = 0; i < options_.iomap_count && !found; ++i) {
      entry = load_iomap(&tables_[RsSge::kSize * kSglEntries + RsIomap::kSize * i]);
      found = entry.sge.length != 0 && at >= entry.offset && at - entry.offset < entry.sge.length;
    }
    if (!found) break;
    const std::uint64_t inside = at - entry.offset;
    const std::size_t n =
        std::min<std::size_t>({data.size() - done, send_free_, kPiece, entry.sge.length - inside});
    if (!post_piece(data.subspan(done, n), entry.sge.addr + inside, entry.sge.key, false)) break;
    done += n;
  }
  return done;
}

}  // namespace weft::rsockets
