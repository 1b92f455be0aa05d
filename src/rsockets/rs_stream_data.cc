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

}  // namespace

std::size_t RsStream::room() const {
  if (!running() || targets_.empty() || requests_free_ < 2) return 0;
  if (!credits_.any() || sending_.is_low()) return 0;
  return std::min<std::size_t>(sending_.free(), targets_.front().length);
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
    credits_.sent();
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
    const std::size_t first = sending_.before_wrap(piece.size());
    std::memcpy(send_memory_.at(sending_.at()), piece.data(), first);
    parts[0] = send_memory_.sge(sending_.at(), first);
    if (first < piece.size()) {
      std::memcpy(send_memory_.at(0), piece.data() + first, piece.size() - first);
      parts[1] = send_memory_.sge(0, piece.size() - first);
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
  assert(requests_free_ >= wanted);
  const Posted posted = qp_->post_send(std::span<const SendWr>(wrs, wanted));
  data_outstanding_ += static_cast<std::uint32_t>(posted.count);
  requests_free_ -= static_cast<std::uint32_t>(posted.count);
  if (posted.count > 0 && !small) sending_.take(length);
  if (posted.count == wanted) return true;
  end(Life::kDown);
  return false;
}

std::size_t RsStream::receive(std::span<std::uint8_t> out, bool peek) {
  const std::size_t at = reading_.read_at();
  const std::size_t total = std::min(out.size(), reading_.unread());
  const std::size_t first = std::min(total, recv_memory_.size() - at);
  if (total == 0) return 0;
  std::memcpy(out.data(), recv_memory_.at(at), first);
  std::memcpy(out.data() + first, recv_memory_.at(0), total - first);
  if (peek) return total;
  reading_.taken(total);
  if (running()) give_credit();
  return total;
}

// --- mapped memory ---

Status RsStream::map(void* addr, std::size_t length, bool writable, std::uint64_t offset) {
  if (auto added = maps_.add(*pd_, addr, length, writable, offset); !added) return added;
  send_pending_maps();
  return {};
}

// The peer is not told, and a late Write to a region that is gone would end the connection: the
// peer has to be told by other means first, as with rdma-core (H9).
Status RsStream::unmap(void* addr, std::size_t length) { return maps_.remove(addr, length); }

void RsStream::send_pending_maps() {
  while (running() && maps_.pending() && requests_free_ >= 2 && credits_.any()) {
    const auto& [slot, entry] = maps_.next();
    std::array<std::uint8_t, RsIomap::kSize> bytes{};
    store_iomap(bytes.data(), entry);
    const std::uint32_t posted =
        post_entry(bytes, remote_.offer(slot), {RsOp::kIomap, slot}, kDataRequest);
    data_outstanding_ += posted;
    requests_free_ -= posted;
    if (posted != 2) return;
    if (remote_.offers_give_credit_back()) credits_.sent();
    maps_.told();
  }
}

std::optional<RsIomap> RsStream::mapped_at(std::uint64_t offset) const {
  for (std::size_t i = 0; i < options_.iomap_count; ++i) {
    const std::size_t at = std::size_t{RsSge::kSize} * kSglEntries + RsIomap::kSize * i;
    const RsIomap entry = load_iomap(tables_.at(at));
    if (entry.sge.length != 0 && offset >= entry.offset &&
        offset - entry.offset < entry.sge.length) {
      return entry;
    }
  }
  return std::nullopt;
}

bool RsStream::mapped(std::uint64_t offset) const { return mapped_at(offset).has_value(); }

std::size_t RsStream::write_mapped(std::span<const std::uint8_t> data, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < data.size() && running() && requests_free_ >= 1 && sending_.free() > 0) {
    const std::uint64_t at = offset + done;
    const auto entry = mapped_at(at);
    if (!entry) break;
    const std::uint64_t inside = at - entry->offset;
    const std::size_t n = std::min<std::size_t>(
        {data.size() - done, sending_.free(), kPiece, entry->sge.length - inside});
    const auto piece = data.subspan(done, n);
    if (!post_piece(piece, entry->sge.addr + inside, entry->sge.key, false)) break;
    done += n;
  }
  return done;
}

}  // namespace weft::rsockets
