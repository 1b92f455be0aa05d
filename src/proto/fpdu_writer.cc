#include "proto/fpdu_writer.h"

#include <cassert>
#include <cstring>

#include "base/bytes.h"

namespace weft::proto {

namespace {

// Worst case of markers in an FPDU of `bytes` octets.
constexpr std::size_t marker_room(std::size_t bytes) {
  return (bytes / (kMarkerInterval - kMarkerSize) + 2) * kMarkerSize;
}

// GCC copies what it can see to be below 8 KiB with a string instruction, which takes longer to
// start than the C library's copy takes for all of the 508 octets between two markers.
std::size_t of_any_size(std::size_t n) noexcept {
  asm("" : "+r"(n));
  return n;
}

// An empty batch has room for an FPDU of any size: all SGEs of a request, none in one piece.
constexpr std::size_t kMarkersMost = marker_room(profile::kCarryBytes) / kMarkerSize;
static_assert(kBatchCopies || kBatchSlices >= limits::kSgesPerRequest + 2 + 2 * kMarkersMost);
static_assert(kBatchArenaBytes >= kFpduLengthSize + kMaxDdpHeaderSize + kMaxPad + kCrcSize +
                                      limits::kSgesPerRequest * FpduWriter::kCopyBelow +
                                      (kBatchCopies ? 0 : kMarkersMost * kMarkerSize));

}  // namespace

bool FpduWriter::room(std::size_t header_len, std::size_t payload_len,
                      std::size_t pieces) const noexcept {
  const TxBatch& b = *batch_;
  const std::size_t frame = kFpduLengthSize + header_len + kMaxPad + kCrcSize;
  const std::size_t markers = markers_ ? marker_room(frame + payload_len) : 0;
  // A piece is a slice, with header or trailer another; each marker among them makes two more.
  std::size_t slices = copies_payload() ? 2 : 2 * pieces + 2;
  if (markers_ && !kBatchCopies) slices = pieces + 2 + 2 * (markers / kMarkerSize);
  if (b.fpdu_count == kBatchFpdus || b.slice_count + slices > kBatchSlices) return false;
  if (b.bytes >= limit_) return false;
  std::size_t arena = frame + markers;
  if (copies_payload()) {
    arena += payload_len;
  } else {
    // Pieces below kCopyBelow are copied, however the payload falls into pieces.
    const std::size_t copied = pieces * kCopyBelow;
    arena += payload_len < copied ? payload_len : copied;
  }
  return b.arena_used + arena <= arena_size();
}

void FpduWriter::extend_arena_slice(std::size_t size) noexcept {
  TxBatch& b = *batch_;
  std::uint8_t* at = b.arena + b.arena_used;
  if (b.slice_count != 0) {
    Slice& last = b.slices[b.slice_count - 1];
    if (last.data + last.size == at) {
      last.size += size;
      b.arena_used += size;
      b.bytes += size;
      return;
    }
  }
  b.slices[b.slice_count++] = {at, size};
  b.arena_used += size;
  b.bytes += size;
}

void FpduWriter::put(const std::uint8_t* data, std::size_t size) noexcept {
  std::memcpy(batch_->arena + batch_->arena_used, data, size);
  extend_arena_slice(size);
  offset_ += size;
}

// Lays a marker at `at` if one is due; returns where the next octet goes.
std::uint8_t* FpduWriter::lay_marker_if_due(std::uint8_t* at) noexcept {
  if (offset_ % kMarkerInterval != 0) return at;
  store_marker(at, static_cast<std::uint32_t>(offset_ - fpdu_start_));
  offset_ += kMarkerSize;
  return at + kMarkerSize;
}

void FpduWriter::put_marker_if_due() noexcept {
  std::uint8_t* const at = batch_->arena + batch_->arena_used;
  extend_arena_slice(static_cast<std::size_t>(lay_marker_if_due(at) - at));
}

// Lays the octets and the markers due among them behind one another.
void FpduWriter::put_marked(const std::uint8_t* data, std::size_t size) noexcept {
  std::uint8_t* const begin = batch_->arena + batch_->arena_used;
  std::uint8_t* at = begin;
  while (size != 0) {
    at = lay_marker_if_due(at);
    const std::size_t gap = until_marker(offset_);
    const std::size_t piece = gap < size ? gap : size;
    std::memcpy(at, data, of_any_size(piece));
    at += piece;
    offset_ += piece;
    data += piece;
    size -= piece;
  }
  extend_arena_slice(static_cast<std::size_t>(at - begin));
}

void FpduWriter::put_summed(const std::uint8_t* data, std::size_t size) noexcept {
  const std::uint8_t* const from = batch_->arena + batch_->arena_used;
  put_marked(data, size);
  if (crc_on_) crc_.update({from, batch_->arena + batch_->arena_used});
}

// Piece by piece, so that the CRC reads from the nearest cache what was just copied.
void FpduWriter::put_checked(const std::uint8_t* data, std::size_t size) noexcept {
  constexpr std::size_t kPiece = 8192;
  while (size != 0) {
    const std::size_t piece = size < kPiece ? size : kPiece;
    const std::uint8_t* const copy = batch_->arena + batch_->arena_used;
    put(data, piece);
    if (crc_on_) crc_.update(copy, piece);
    data += piece;
    size -= piece;
  }
}

void FpduWriter::name(const std::uint8_t* data, std::size_t size) noexcept {
  TxBatch& b = *batch_;
  // The transport only reads; a gather list has no const form.
  b.slices[b.slice_count++] = {const_cast<std::uint8_t*>(data), size};
  b.bytes += size;
  offset_ += size;
}

// Names the octets between two markers; only the markers are in the arena.
void FpduWriter::name_marked(const std::uint8_t* data, std::size_t size) noexcept {
  while (size != 0) {
    const std::size_t gap = until_marker(offset_);
    if (gap == 0) {
      const std::uint8_t* const marker = batch_->arena + batch_->arena_used;
      put_marker_if_due();
      if (crc_on_) crc_.update(marker, kMarkerSize);
      continue;
    }
    const std::size_t piece = gap < size ? gap : size;
    if (crc_on_) crc_.update(data, piece);
    name(data, piece);
    data += piece;
    size -= piece;
  }
}

void FpduWriter::begin(const std::uint8_t* header, std::size_t header_len,
                       std::size_t payload_len) noexcept {
  ulpdu_len_ = static_cast<std::uint32_t>(header_len + payload_len);
  frame_ = batch_->arena + batch_->arena_used;
  fpdu_start_ = offset_;
  std::uint8_t length[kFpduLengthSize];
  store_ulpdu_length(length, static_cast<std::uint16_t>(ulpdu_len_));
  if (markers_) {
    // A marker due here lies before the length field and points nowhere (FPDUPTR 0).
    put_marker_if_due();
    fpdu_start_ = offset_;
    put_marked(length, kFpduLengthSize);
    put_marked(header, header_len);
    if constexpr (!kBatchCopies) {
      crc_.reset();
      if (crc_on_) crc_.update({frame_, batch_->arena + batch_->arena_used});
    }
    return;
  }
  put(length, kFpduLengthSize);
  put(header, header_len);
  crc_.reset();
  if (crc_on_) crc_.update(frame_, kFpduLengthSize + header_len);
}

void FpduWriter::payload(const std::uint8_t* data, std::size_t size, bool stable) noexcept {
  if (size == 0) return;
  const bool copy = copies_payload() || !stable || size < kCopyBelow;
  if (markers_) {
    if constexpr (kBatchCopies) return put_marked(data, size);
    return copy ? put_summed(data, size) : name_marked(data, size);
  }
  if (copy) return put_checked(data, size);
  if (crc_on_) crc_.update(data, size);
  name(data, size);
}

// Without markers the octets lie where they are sent from, behind the header to come; otherwise at
// the end of the arena, to be laid among markers.
std::uint8_t* FpduWriter::fetch_room(std::size_t header_len, std::size_t payload_len) noexcept {
  TxBatch& b = *batch_;
  const std::size_t frame = kFpduLengthSize + header_len + payload_len + kMaxPad + kCrcSize;
  const std::size_t need = markers_ ? frame + marker_room(frame) + payload_len : frame;
  if (b.arena_used + need > arena_size()) return nullptr;
  if (markers_) return b.arena + arena_size() - payload_len;
  return b.arena + b.arena_used + kFpduLengthSize + header_len;
}

std::size_t FpduWriter::fetch_max(std::size_t header_len) const noexcept {
  const std::size_t frame = kFpduLengthSize + header_len + kMaxPad + kCrcSize;
  if (!markers_) return arena_size() - frame;
  return (arena_size() - frame - marker_room(arena_size())) / 2;
}

void FpduWriter::fetched(std::size_t payload_len) noexcept {
  if (markers_) {
    const std::uint8_t* const at = batch_->arena + arena_size() - payload_len;
    return kBatchCopies ? put_marked(at, payload_len) : put_summed(at, payload_len);
  }
  if (crc_on_) crc_.update(batch_->arena + batch_->arena_used, payload_len);
  extend_arena_slice(payload_len);
  offset_ += payload_len;
}

void FpduWriter::end() noexcept {
  std::uint8_t trailer[kMaxPad + kCrcSize] = {};
  const std::uint32_t pad = fpdu_pad(ulpdu_len_);
  std::uint32_t crc = 0;
  if (markers_) {
    const std::uint8_t* const padding = batch_->arena + batch_->arena_used;
    put_marked(trailer, pad);
    put_marker_if_due();
    const std::uint8_t* const end = batch_->arena + batch_->arena_used;
    if (crc_on_ && kBatchCopies) {
      // All of the FPDU is in the arena, in one piece and still in the cache.
      crc = crc32c({frame_, end});
    } else if (crc_on_) {
      crc_.update({padding, end});
      crc = crc_.value();
    }
  } else if (crc_on_) {
    crc_.update(trailer, pad);
    crc = crc_.value();
  }
  std::uint8_t* crc_field = markers_ ? trailer : trailer + pad;
  store_crc(crc_field, crc);
  put(trailer, markers_ ? kCrcSize : pad + kCrcSize);
  batch_->fpdu_ends[batch_->fpdu_count++] = static_cast<std::uint32_t>(batch_->bytes);
}

void FpduWriter::end_small() noexcept {
  const std::uint32_t covered = fpdu_covered(ulpdu_len_);
  std::uint8_t* at = batch_->arena + batch_->arena_used;
  std::memset(at + kFpduLengthSize + ulpdu_len_, 0, fpdu_pad(ulpdu_len_));
  store_crc(at + covered, crc_on_ ? crc32c({at, covered}) : 0);
  extend_arena_slice(covered + kCrcSize);
  offset_ += covered + kCrcSize;
  batch_->fpdu_ends[batch_->fpdu_count++] = static_cast<std::uint32_t>(batch_->bytes);
}

void FpduWriter::cut() noexcept {
  TxBatch& b = *batch_;
  std::size_t keep = 0;
  std::size_t fpdus = 0;
  if (b.sent != 0) {
    while (fpdus < b.fpdu_count && keep < b.sent) keep = b.fpdu_ends[fpdus++];
  }
  // The rest of the FPDU in progress is copied to where the application cannot change it. A second
  // cut finds it there already, hence memmove.
  const std::size_t left = keep - b.sent;
  if constexpr (!kBatchCopies) {
    offset_ -= b.bytes - keep;
    b.bytes = keep;
    b.fpdu_count = fpdus;
    return cut_in_place(left);
  }
  if (markers_) return cut_marked(keep, fpdus, left);
  std::uint8_t* const copy = b.arena + kBatchArenaBytes;
  std::size_t copied = 0;
  for (std::size_t i = b.slice_next; i < b.slice_count && copied < left; ++i) {
    const std::size_t take = b.slices[i].size < left - copied ? b.slices[i].size : left - copied;
    std::memmove(copy + copied, b.slices[i].data, take);
    copied += take;
  }
  offset_ -= b.bytes - keep;
  b.bytes = keep;
  b.fpdu_count = fpdus;
  b.slice_count = b.slice_next = 0;
  if (copied != 0) b.slices[b.slice_count++] = {copy, copied};
  if (b.released != b.sent) return;  // the transport reads what was taken: arena and pins stay
  b.arena_used = 0;
  b.unpin();
  b.source_count = 0;
}

// The rest of the FPDU in progress stays where it is, pinned. Its last octets are the CRC, in the
// arena.
void FpduWriter::cut_in_place(std::size_t left) noexcept {
  TxBatch& b = *batch_;
  b.slice_count = b.slice_next;
  if (left == 0) return;
  const Slice* end = nullptr;
  while (left != 0) {
    Slice& slice = b.slices[b.slice_count++];
    if (slice.size > left) slice.size = left;
    left -= slice.size;
    end = &slice;
  }
  b.arena_used = static_cast<std::size_t>(end->data + end->size - b.arena);
}

// With markers nothing but the arena is named: the rest of the FPDU in progress stays where it is,
// in one piece.
void FpduWriter::cut_marked(std::size_t keep, std::size_t fpdus, std::size_t left) noexcept {
  TxBatch& b = *batch_;
  offset_ -= b.bytes - keep;
  b.bytes = keep;
  b.fpdu_count = fpdus;
  if (b.released == b.sent) {  // else the transport reads what was taken
    b.unpin();
    b.source_count = 0;
    if (left == 0) b.arena_used = 0;
  }
  if (left == 0) {
    b.slice_count = b.slice_next = 0;
    return;
  }
  const Slice rest{b.slices[b.slice_next].data, left};
  assert(b.slices[b.slice_next].size >= left);
  b.slices[0] = rest;
  b.slice_count = 1;
  b.slice_next = 0;
  b.arena_used = static_cast<std::size_t>(rest.data + left - b.arena);
}

}  // namespace weft::proto
