// The wire format of rsockets over iWARP: private data, the 4-octet message, the SGE.
//
// Values and bytes only: no allocation, no I/O, any thread. Layout as rdma-core 44 has it; see
// docs/sockets.md.
//
// What a hostile or unlucky peer can do, and what happens then (tests/programs/rsocket_hazards.py):
//
//   H1      control messages beyond the credits: 16 more receives are posted than are offered, and
//           the last 8 credits are kept for control
//   H2, H4  other byte order, private data missing or short, other version: rejected
//   H3      a target that is written but not announced is not used
//   H5, H7  lengths, counts and operations that make no sense end the connection: ECONNRESET
//   H6      iomap messages cost no credit
//   H8      no inline data (RDMA_INLINE 0): 24 octets at least, which its own messages need
//   H9      writes to memory that was never offered end the connection; the memory is untouched
//   H10     slow or silent clients delay nobody
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"

namespace weft::rsockets {

// One target buffer: where its owner lets the peer write. In memory, written by RDMA Write, its
// fields are in host order (peers of the other byte order are refused).
struct RsSge {
  static constexpr std::size_t kSize = 16;
  std::uint64_t addr = 0;
  std::uint32_t key = 0;
  std::uint32_t length = 0;

  bool operator==(const RsSge&) const = default;
};
[[nodiscard]] RsSge load_sge(const std::uint8_t* at);
void store_sge(std::uint8_t* at, const RsSge& sge);

// An entry of the table of mapped memory: an offset and an SGE.
struct RsIomap {
  static constexpr std::size_t kSize = 24;
  std::uint64_t offset = 0;
  RsSge sge;
};
[[nodiscard]] RsIomap load_iomap(const std::uint8_t* at);
void store_iomap(std::uint8_t* at, const RsIomap& entry);

// Private data of the MPA Request and Reply.
struct RsConnect {
  static constexpr std::size_t kSize = 40;
  static constexpr std::uint8_t kVersion = 1;

  std::uint16_t credits = 0;      // receives posted for data
  std::uint16_t iomap_count = 0;  // entries of the table behind the SGL
  RsSge target_sgl;               // length: entries of the SGL
  RsSge data_buffer;              // first half of the receive ring
  bool from_weft = false;         // the sender is Weft: IOMAP messages give their credit back
};
void encode(const RsConnect& value, std::span<std::uint8_t, RsConnect::kSize> out);
// Octets behind the 40 are ignored.
//   kTruncated     shorter than 40 octets (hazard H4)
//   kBadVersion    version is not 1
//   kUnsupported   the peer has the other byte order (H2)
//   kBadLength     no SGL entry, more than we track, or no credit
[[nodiscard]] Result<RsConnect> decode_connect(std::span<const std::uint8_t> in);

// Largest count that the 8-bit field can carry and that is not above `wanted`... rounded as the
// peer will decode it.
[[nodiscard]] std::uint16_t round_iomap_count(std::uint32_t wanted);

enum class RsOp : std::uint8_t { kData, kCredit, kIomap, kDisconnect, kShutdown };
struct RsMessage {
  static constexpr std::size_t kSize = 4;
  static constexpr std::uint32_t kMaxData = (1U << 29U) - 1;
  RsOp op = RsOp::kData;
  std::uint32_t data = 0;
};
[[nodiscard]] std::array<std::uint8_t, RsMessage::kSize> encode(const RsMessage& message);
// Nothing: an operation or a control code that is not assigned.
[[nodiscard]] std::optional<RsMessage> decode_message(std::span<const std::uint8_t, 4> in);

}  // namespace weft::rsockets
