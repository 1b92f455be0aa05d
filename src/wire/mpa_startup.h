// MPA start-up frames: RFC 5044 section 7.1, RFC 6581 sections 6 and 9.
//
// Pure functions over bytes: no allocation, no I/O, no clock, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/limits.h"

namespace weft {

// Which of the two frames is expected: a responder expects a Request, an initiator a Reply.
enum class MpaKind : std::uint8_t { kRequest, kReply };

// A Request or Reply frame. `private_data` borrows: from the input when decoded, from the caller
// when about to be encoded.
struct MpaFrame {
  static constexpr std::size_t kSize = kMpaFrameSize;  // without the private data

  bool is_reply = false;
  bool markers = false;   // M: the sender of this frame wants markers in what it receives
  bool crc = false;       // C: the sender wants CRCs; either frame turns both directions on
  bool reject = false;    // R: meaningful in a Reply only; a Request with it is not refused
  bool enhanced = false;  // S: private data begins with EnhancedWords. Never true below revision 2
  std::uint8_t revision = 2;  // raw: whether it is spoken is for the protocol core to decide
  std::span<const std::uint8_t> private_data{};  // whole, including the enhanced words

  [[nodiscard]] std::size_t encoded_size() const noexcept { return kSize + private_data.size(); }
};

// How many more octets of the stream the frame at the start of `have` needs: 0 when it is whole.
// Before the length field has come this is the distance to the end of the fixed part, so a caller
// asks again after reading. Never asks for an octet behind the frame.
//
//   kBadKey              the octets so far cannot become the key of this kind: close TCP, report
//                        locally (two initiators facing each other end here)
//   kPrivateDataTooLong  PD_Length above 512: close TCP, report locally
[[nodiscard]] Result<std::size_t> mpa_frame_missing(std::span<const std::uint8_t> have,
                                                    MpaKind expected);

// Reads one frame and leaves `in` behind it. On error `in` has not moved. Reserved bits are
// ignored. An enhanced frame may carry fewer than 4 octets (some peers reject that way):
// decode_enhanced_words() tells.
//
//   kTruncated           mpa_frame_missing() octets are not there yet: read more
//   kBadKey, kPrivateDataTooLong   as above
[[nodiscard]] Result<MpaFrame> decode_mpa_frame(ByteReader& in, MpaKind expected);

// Appends exactly frame.encoded_size() octets. REQUIRES: room for them, private data of at most
// 512 octets, and if enhanced: revision 2 or more.
void encode(const MpaFrame& frame, ByteWriter& out);

// The four octets at the head of the private data of an enhanced frame, RFC 6581 section 9.
struct EnhancedWords {
  static constexpr std::size_t kSize = kEnhancedWordsSize;

  bool peer_to_peer = false;  // A: the initiator sends an RTR first
  bool rtr_send = false;      // B: a zero-length Send serves as RTR
  bool rtr_write = false;     // C: a zero-length Write serves as RTR
  bool rtr_read = false;      // D: a zero-length Read serves as RTR
  std::uint16_t ird = 0;      // reads the sender can serve at once; 0x3fff: not negotiated
  std::uint16_t ord = 0;      // reads the sender wants outstanding; 0x3fff: not negotiated

  bool operator==(const EnhancedWords&) const = default;
};

// Reads the words and leaves `in` at the application's private data. Every bit has a meaning, so
// nothing but length can fail.
//
//   kTruncated   fewer than 4 octets: the frame is malformed; `in` has not moved
[[nodiscard]] Result<EnhancedWords> decode_enhanced_words(ByteReader& in);

// Appends exactly 4 octets. REQUIRES: room for them, ird and ord at most 0x3fff.
void encode(const EnhancedWords& words, ByteWriter& out);

}  // namespace weft
