#include "wire/mpa_startup.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace weft {
namespace {

constexpr std::size_t kKeySize = 16;
using Key = std::array<std::uint8_t, kKeySize>;

constexpr Key kRequestKey{'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R',
                          'e', 'q', ' ', 'F', 'r', 'a', 'm', 'e'};
constexpr Key kReplyKey{'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R',
                        'e', 'p', ' ', 'F', 'r', 'a', 'm', 'e'};

constexpr std::size_t kFlagsAt = 16;
constexpr std::size_t kRevisionAt = 17;
constexpr std::size_t kLengthAt = 18;

constexpr std::uint8_t kMarkersBit = 0x80;
constexpr std::uint8_t kCrcBit = 0x40;
constexpr std::uint8_t kRejectBit = 0x20;
constexpr std::uint8_t kEnhancedBit = 0x10;
constexpr std::uint8_t kRevisionEnhanced = 2;

constexpr std::uint16_t kFlagPeerToPeer = 0x8000;  // first word
constexpr std::uint16_t kFlagRtrSend = 0x4000;
constexpr std::uint16_t kFlagRtrWrite = 0x8000;  // second word
constexpr std::uint16_t kFlagRtrRead = 0x4000;
constexpr std::uint16_t kDepthMask = 0x3fff;

constexpr const Key& key_of(bool is_reply) { return is_reply ? kReplyKey : kRequestKey; }

constexpr std::uint16_t word(bool high, std::uint16_t high_bit, bool low, std::uint16_t low_bit,
                             std::uint16_t depth) {
  return static_cast<std::uint16_t>((high ? high_bit : 0) | (low ? low_bit : 0) |
                                    (depth & kDepthMask));
}

}  // namespace

Result<std::size_t> mpa_frame_missing(std::span<const std::uint8_t> have, MpaKind expected) {
  // The key is judged on as much of it as has come: a stray client is turned away by its first
  // octet and does not hold a half-open request until the deadline.
  const Key& key = key_of(expected == MpaKind::kReply);
  const std::size_t key_octets = std::min(have.size(), kKeySize);
  if (!std::equal(have.begin(), have.begin() + static_cast<std::ptrdiff_t>(key_octets),
                  key.begin())) {
    return fail(Error::kBadKey);
  }
  if (have.size() < MpaFrame::kSize) return MpaFrame::kSize - have.size();

  const std::size_t private_len = load_be16(have.data() + kLengthAt);
  if (private_len > kMaxPrivateData) return fail(Error::kPrivateDataTooLong);
  const std::size_t total = MpaFrame::kSize + private_len;
  return have.size() >= total ? 0 : total - have.size();
}

Result<MpaFrame> decode_mpa_frame(ByteReader& in, MpaKind expected) {
  const Result<std::size_t> missing = mpa_frame_missing(in.rest(), expected);
  if (!missing) return fail(missing.error());
  if (*missing != 0) return fail(Error::kTruncated);

  const std::span<const std::uint8_t> fixed = in.bytes(MpaFrame::kSize);
  const std::uint8_t flags = fixed[kFlagsAt];
  MpaFrame frame;
  frame.is_reply = expected == MpaKind::kReply;
  frame.revision = fixed[kRevisionAt];
  frame.markers = (flags & kMarkersBit) != 0;
  frame.crc = (flags & kCrcBit) != 0;
  frame.reject = (flags & kRejectBit) != 0;
  // Revision 1 knows no S bit: there it is one of the reserved bits to be ignored.
  frame.enhanced = (flags & kEnhancedBit) != 0 && frame.revision >= kRevisionEnhanced;
  frame.private_data = in.bytes(load_be16(fixed.data() + kLengthAt));
  return frame;
}

void encode(const MpaFrame& frame, ByteWriter& out) {
  assert(frame.private_data.size() <= kMaxPrivateData);
  assert(!frame.enhanced || frame.revision >= kRevisionEnhanced);
  assert(out.room() >= frame.encoded_size());
  out.bytes(key_of(frame.is_reply));
  out.u8(static_cast<std::uint8_t>((frame.markers ? kMarkersBit : 0) | (frame.crc ? kCrcBit : 0) |
                                   (frame.reject ? kRejectBit : 0) |
                                   (frame.enhanced ? kEnhancedBit : 0)));
  out.u8(frame.revision);
  out.be16(static_cast<std::uint16_t>(frame.private_data.size()));
  out.bytes(frame.private_data);
}

Result<EnhancedWords> decode_enhanced_words(ByteReader& in) {
  if (in.remaining() < EnhancedWords::kSize) return fail(Error::kTruncated);
  const std::uint16_t first = in.be16();
  const std::uint16_t second = in.be16();
  EnhancedWords words;
  words.peer_to_peer = (first & kFlagPeerToPeer) != 0;
  words.rtr_send = (first & kFlagRtrSend) != 0;
  words.rtr_write = (second & kFlagRtrWrite) != 0;
  words.rtr_read = (second & kFlagRtrRead) != 0;
  words.ird = first & kDepthMask;
  words.ord = second & kDepthMask;
  return words;
}

void encode(const EnhancedWords& words, ByteWriter& out) {
  assert(words.ird <= kDepthMask && words.ord <= kDepthMask);
  out.be16(word(words.peer_to_peer, kFlagPeerToPeer, words.rtr_send, kFlagRtrSend, words.ird));
  out.be16(word(words.rtr_write, kFlagRtrWrite, words.rtr_read, kFlagRtrRead, words.ord));
}

}  // namespace weft
