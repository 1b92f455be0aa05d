// The sending half of MPA framing: lays FPDUs into a batch, with pad, CRC and markers.
//
// One thread at a time. The batch is the owner's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/crc32c.h"
#include "base/profile.h"
#include "base/seq.h"
#include "proto/batch.h"
#include "wire/fpdu.h"

namespace weft::proto {

class FpduWriter {
 public:
  // Below this a payload piece is copied: cheaper than one more slice.
  static constexpr std::size_t kCopyBelow = profile::kCopyBelow;

  FpduWriter(bool crc, bool markers) : crc_on_(crc), markers_(markers) {}

  // From the next FPDU on.
  void change(bool crc, bool markers) noexcept {
    crc_on_ = crc;
    markers_ = markers;
  }
  // `limit`: no FPDU begins behind so many octets of it.
  void attach(TxBatch* batch, std::size_t limit = kBatchBytes) noexcept {
    batch_ = batch;
    limit_ = limit;
  }
  void widen(std::size_t limit) noexcept { limit_ = limit; }
  [[nodiscard]] TxBatch* batch() const noexcept { return batch_; }

  // Whether one more FPDU fits: header, payload and at most `pieces` payload pieces.
  [[nodiscard]] bool room(std::size_t header_len, std::size_t payload_len,
                          std::size_t pieces) const noexcept;

  // Whether payload is copied into the batch whatever its size. With CRC on it is: the program may
  // change a buffer while it is sent, and the CRC has to be that of the octets that leave.
  [[nodiscard]] bool copies_payload() const noexcept {
    return kBatchCopies && (crc_on_ || markers_);
  }

  // begin(), payload() any number of times, end(). REQUIRES: room() said yes, and the pieces add up
  // to `payload_len`. `header` is copied. `stable` pieces stay in place until the batch is sent or
  // cut, unless copies_payload(); others are copied now.
  void begin(const std::uint8_t* header, std::size_t header_len, std::size_t payload_len) noexcept;
  void payload(const std::uint8_t* data, std::size_t size, bool stable) noexcept;
  void end() noexcept;

  // For a payload that has to be fetched: where its `payload_len` octets go before begin(). Then
  // fetched() takes the place of payload(). Null: no room.
  [[nodiscard]] std::uint8_t* fetch_room(std::size_t header_len, std::size_t payload_len) noexcept;
  void fetched(std::size_t payload_len) noexcept;
  // The most for which an empty batch has room.
  [[nodiscard]] std::size_t fetch_max(std::size_t header_len) const noexcept;

  // The same for an FPDU that is small and without markers, in one piece: returns where the ULPDU
  // goes, `ulpdu_len` octets in the arena to be filled before end_small(). REQUIRES: room() said
  // or room_small() said yes, no markers, a payload below kCopyBelow.
  [[nodiscard]] bool room_small(std::size_t ulpdu_len) const noexcept {
    const TxBatch& b = *batch_;
    return b.fpdu_count < kBatchFpdus && b.slice_count < kBatchSlices && b.bytes < limit_ &&
           b.arena_used + kFpduLengthSize + ulpdu_len + kMaxPad + kCrcSize <= kBatchArenaBytes;
  }
  [[nodiscard]] std::uint8_t* begin_small(std::uint32_t ulpdu_len) noexcept {
    ulpdu_len_ = ulpdu_len;
    std::uint8_t* at = batch_->arena + batch_->arena_used;
    store_ulpdu_length(at, static_cast<std::uint16_t>(ulpdu_len));
    return at + kFpduLengthSize;
  }
  void end_small() noexcept;

  // FPDUs have neither CRC nor markers.
  [[nodiscard]] bool is_bare() const noexcept { return !crc_on_ && !markers_; }
  // The owner has laid FPDUs of so many octets somewhere else.
  void note_laid(std::size_t bytes) noexcept { offset_ += bytes; }

  // Stream offset behind the last FPDU built.
  [[nodiscard]] StreamOffset offset() const noexcept { return offset_; }

  // Takes back what has not begun to be sent: the batch ends with the FPDU of which octets have
  // gone. Where batches copy (kBatchCopies), the rest of that FPDU no longer names memory outside
  // the batch; else the owner leaves that memory alone until the rest has been sent. What the
  // transport is still reading stays where it is.
  void cut() noexcept;
  // Takes back the last `bytes` octets, which were in batches that are dropped.
  void take_back(std::size_t bytes) noexcept { offset_ -= bytes; }

 private:
  [[nodiscard]] std::size_t arena_size() const noexcept {
    return markers_ ? sizeof(TxBatch::arena) : kBatchArenaBytes;
  }
  void cut_marked(std::size_t keep, std::size_t fpdus, std::size_t left) noexcept;
  void cut_in_place(std::size_t left) noexcept;
  void put(const std::uint8_t* data, std::size_t size) noexcept;          // into the arena
  void put_marked(const std::uint8_t* data, std::size_t size) noexcept;   // likewise, with markers
  void put_summed(const std::uint8_t* data, std::size_t size) noexcept;   // and into the CRC
  void put_checked(const std::uint8_t* data, std::size_t size) noexcept;  // likewise, no markers
  void name(const std::uint8_t* data, std::size_t size) noexcept;         // where it lies
  void name_marked(const std::uint8_t* data, std::size_t size) noexcept;
  void put_marker_if_due() noexcept;
  [[nodiscard]] std::uint8_t* lay_marker_if_due(std::uint8_t* at) noexcept;
  void extend_arena_slice(std::size_t size) noexcept;

  bool crc_on_;
  bool markers_;
  TxBatch* batch_ = nullptr;
  std::size_t limit_ = kBatchBytes;
  StreamOffset offset_ = 0;
  StreamOffset fpdu_start_ = 0;          // offset of the length field of the open FPDU
  const std::uint8_t* frame_ = nullptr;  // first octet of the open FPDU, in the arena
  std::uint32_t ulpdu_len_ = 0;
  Crc32c crc_;
};

}  // namespace weft::proto
