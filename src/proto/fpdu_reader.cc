#include "proto/fpdu_reader.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace weft::proto {

FpduReader::FpduReader(bool crc, bool markers, bool check_markers, CarryPool& pool)
    : crc_(crc), markers_(markers), check_markers_(check_markers), pool_(pool) {}

FpduReader::~FpduReader() { drop_all(); }

Slice FpduReader::want(std::span<std::uint8_t> scratch) {
  const std::size_t held = carry_size_;
  const bool in_place = held < carry_capacity_;
  assert(direct_remaining_ == 0 && (in_place || scratch.size() >= kScratchBytesMin));
  std::uint8_t* const at = in_place ? carry_ : scratch.data();
  std::size_t room = in_place ? carry_capacity_ : scratch.size();
  if (!in_place && large_lately_ != 0) room = held + kStagedMax;
  if (held != 0 && !in_place) {
    std::memcpy(at, carry_, held);
    release_carry();
  }
  carry_size_ = 0;
  cur_ = at;
  end_ = cur_ + held;
  fill_ = end_;
  return {end_, room - held};
}

void FpduReader::release_carry() {
  if (carry_ != nullptr) pool_.release_carry(carry_, carry_capacity_);
  carry_ = nullptr;
  carry_size_ = carry_capacity_ = 0;
}

Slice FpduReader::want_tail() {
  fill_ = nullptr;
  return {tail_, trailer_remaining_ + 2 + kMaxDdpHeaderSize};
}

void FpduReader::feed(std::span<std::uint8_t> bytes) {
  fed_ = true;
  resume(bytes);
}

void FpduReader::drop_rest() {
  release_carry();
  cur_ = end_ = nullptr;
}

void FpduReader::resume(std::span<std::uint8_t> bytes) {
  assert(at_border());
  cur_ = bytes.data();
  end_ = cur_ + bytes.size();
}

std::size_t FpduReader::filled(std::size_t n) {
  if (fill_ != nullptr) {
    end_ = fill_ + n;
    fill_ = end_;
    if (n != 0) last_fill_ = n;
    return 0;
  }
  const std::size_t payload = n < direct_remaining_ ? n : direct_remaining_;
  direct_remaining_ -= payload;
  offset_ += payload;
  cur_ = tail_;
  end_ = tail_ + (n - payload);
  return payload;
}

Inbound FpduReader::next() {
  if (direct_remaining_ != 0) return {};
  if (in_direct_) {
    const auto here = static_cast<std::size_t>(end_ - cur_);
    const std::size_t skip = here < trailer_remaining_ ? here : trailer_remaining_;
    cur_ += skip;
    offset_ += skip;
    trailer_remaining_ -= skip;
    if (trailer_remaining_ != 0) return {};
    in_direct_ = false;
    return {.kind = Inbound::Kind::kDirectEnd};
  }
  return parse();
}

Inbound FpduReader::parse() {
  const auto here = static_cast<std::size_t>(end_ - cur_);
  const std::size_t lead = markers_ && offset_ % kMarkerInterval == 0 ? kMarkerSize : 0;
  if (here < lead + kFpduLengthSize) return {};
  const std::uint32_t ulpdu_len = load_ulpdu_length(cur_ + lead);
  const std::size_t raw = markers_ ? fpdu_size_marked(offset_, ulpdu_len) : fpdu_size(ulpdu_len);
  // A marker due between pad and CRC belongs to this FPDU and is counted; one due behind the CRC is
  // not.
  if (here >= raw) return whole(ulpdu_len, raw);
  const bool direct_possible = profile::kPlacesDirectly && !crc_ && !markers_ && !keep_ &&
                               ulpdu_len >= kDirectMin &&
                               here >= kFpduLengthSize + kMaxDdpHeaderSize;
  if (!direct_possible) return {};
  const std::size_t part = here - kFpduLengthSize;
  return {.kind = Inbound::Kind::kDirect,
          .ulpdu_len = ulpdu_len,
          .ulpdu = std::span<const std::uint8_t>(cur_ + kFpduLengthSize,
                                                 std::min<std::size_t>(part, ulpdu_len))};
}

void FpduReader::place_directly() {
  const std::uint32_t ulpdu_len = load_ulpdu_length(cur_);
  auto here = static_cast<std::size_t>(end_ - cur_) - kFpduLengthSize;
  if (here > ulpdu_len) here = ulpdu_len;
  in_direct_ = true;
  large_lately_ = kLately;
  fill_ = nullptr;  // what comes next is payload, even if the plan has no room for the tail
  direct_remaining_ = ulpdu_len - here;
  trailer_remaining_ = fpdu_pad(ulpdu_len) + kCrcSize;
  cur_ += kFpduLengthSize + here;
  offset_ += kFpduLengthSize + here;
}

void FpduReader::keep() { keep_ = true; }

Inbound FpduReader::whole(std::uint32_t ulpdu_len, std::size_t raw_size) {
  std::uint8_t* raw = cur_;
  const StreamOffset at = offset_;
  cur_ += raw_size;
  offset_ += raw_size;
  keep_ = false;
  if (ulpdu_len < kDirectMin) {
    if (large_lately_ != 0) --large_lately_;
  } else if (!crc_ && !markers_) {
    large_lately_ = kLately;
  }
  if (crc_) {
    const std::size_t covered = raw_size - kCrcSize;
    if (crc32c({raw, covered}) != load_crc(raw + covered)) {
      return {.kind = Inbound::Kind::kViolation, .violation = Violation::kCrc};
    }
  }
  if (markers_ && check_markers_ && !markers_agree(raw, raw_size, at)) {
    return {.kind = Inbound::Kind::kViolation, .violation = Violation::kMarker};
  }
  return {.kind = Inbound::Kind::kUlpdu,
          .ulpdu_len = ulpdu_len,
          .ulpdu = ulpdu_in(raw, raw_size, ulpdu_len, at)};
}

// Each tells how far behind the length field it stands; the one before that, nothing.
bool FpduReader::markers_agree(const std::uint8_t* raw, std::size_t raw_size,
                               StreamOffset at) const noexcept {
  const bool leads = at % kMarkerInterval == 0;
  if (leads && load_marker(raw) != 0) return false;
  const std::size_t length_field = leads ? kMarkerSize : 0;
  std::size_t next = leads ? kMarkerInterval : until_marker(at);
  for (; next + kMarkerSize + kCrcSize <= raw_size; next += kMarkerInterval) {
    if (load_marker(raw + next) != next - length_field) return false;
  }
  return true;
}

// The markers stay among the payload. One between length field and payload is taken out, for a
// header that can be read.
MarkedOctets FpduReader::ulpdu_in(std::uint8_t* raw, std::size_t raw_size, std::uint32_t ulpdu_len,
                                  StreamOffset at) const noexcept {
  std::uint8_t* ulpdu = raw + kFpduLengthSize;
  std::size_t next = until_marker(at);  // the first one, from `raw` on
  if (!markers_ || next + kMarkerSize + kCrcSize > raw_size) {
    return std::span<const std::uint8_t>(ulpdu, ulpdu_len);
  }
  if (next < kFpduLengthSize + kMaxDdpHeaderSize) {
    std::memmove(raw + kMarkerSize, raw, next);
    ulpdu += kMarkerSize;
    next += kMarkerInterval - kMarkerSize;
  }
  return {ulpdu, ulpdu_len, next - kFpduLengthSize};
}

bool FpduReader::at_border() const noexcept {
  return !in_direct_ && direct_remaining_ == 0 && carry_size_ == 0 && cur_ == end_;
}

bool FpduReader::park() {
  const auto left = static_cast<std::size_t>(end_ - cur_);
  if (carry_ != nullptr && cur_ == carry_ && left != 0 && left < carry_capacity_) {
    carry_size_ = left;  // still being put together in place
    cur_ = end_ = nullptr;
    return true;
  }
  if (left == 0 || direct_remaining_ != 0) {
    release_carry();
    return true;
  }
  const std::size_t capacity = carry_capacity_for(left);
  // A length field that came in two pieces moves on to a carry for all of its FPDU; a small pool
  // has no second one meanwhile.
  std::array<std::uint8_t, kMarkerSize + kFpduLengthSize> few;
  if (carry_ != nullptr && cur_ == carry_ && left <= few.size()) {
    std::memcpy(few.data(), cur_, left);
    cur_ = few.data();
    release_carry();
  }
  std::uint8_t* const carry = pool_.acquire_carry(capacity);
  if (carry == nullptr) return false;
  std::memcpy(carry, cur_, left);
  release_carry();  // the octets may have been in it
  carry_ = carry;
  carry_capacity_ = capacity;
  carry_size_ = left;
  cur_ = end_ = nullptr;
  return true;
}

// A peer that sends an FPDU in tiny pieces must not make us copy it back and forth each time: then
// the rest of it is read where it waits. So it is, too, where there is no scratch to read into.
std::size_t FpduReader::carry_capacity_for(std::size_t left) const noexcept {
  const bool dribble = left >= kInPlaceMin && left / 8 > last_fill_;
  if (!dribble && !fed_) return left;
  const std::size_t lead = markers_ && offset_ % kMarkerInterval == 0 ? kMarkerSize : 0;
  return left < lead + kFpduLengthSize ? lead + kFpduLengthSize : raw_size_here();
}

// Octets of the FPDU at cur_. REQUIRES: its length field is there.
std::size_t FpduReader::raw_size_here() const noexcept {
  const std::size_t lead = markers_ && offset_ % kMarkerInterval == 0 ? kMarkerSize : 0;
  const std::uint32_t ulpdu_len = load_ulpdu_length(cur_ + lead);
  return markers_ ? fpdu_size_marked(offset_, ulpdu_len) : fpdu_size(ulpdu_len);
}

void FpduReader::drop_all() {
  release_carry();
  cur_ = end_ = nullptr;
  direct_remaining_ = trailer_remaining_ = 0;
  in_direct_ = keep_ = false;
}

}  // namespace weft::proto
