// What `weft selftest` and `weft selftest --serve` say to each other.
//
// The client's private data may be a Wish; anything else gets a plain accept. The server's private
// data is an Offer: memory to try things on, and what it saw of the client's private data. Then
// each Send of the client is answered with a Send that carries a Report; a Send that is a Command
// is obeyed first. All numbers are big-endian.
#pragma once

#include <cstdint>
#include <optional>

#include "weft/selftest/raw_bytes.h"

namespace weft::selftest {

inline constexpr std::uint16_t kPort = 7473;
inline constexpr std::size_t kRegionBytes = 256U << 10U;
inline constexpr std::size_t kSmallBytes = 4096;     // each of the other buffers
inline constexpr std::size_t kReceiveBytes = 16384;  // of one receive
inline constexpr std::size_t kReceives = 32;         // posted at any time
inline constexpr std::size_t kMaxConnections = 64;

// What the server's memory holds before anybody writes: raw::pattern(n, kRegionSeed), and what it
// sends on command: raw::pattern(n, kSentSeed).
inline constexpr unsigned kRegionSeed = 77;
inline constexpr unsigned kSentSeed = 99;

enum class WishKind : std::uint8_t {
  kAccept = 0,
  kReject = 1,      // with `size` octets of raw::pattern(size, kSentSeed)
  kNoReceives = 2,  // accept, but post no receive
};
struct Wish {
  WishKind kind = WishKind::kAccept;
  std::uint16_t size = 0;
};
[[nodiscard]] raw::Bytes encode(const Wish& wish);
[[nodiscard]] std::optional<Wish> decode_wish(raw::View bytes);

struct Buffer {
  std::uint32_t stag = 0;
  std::uint64_t to = 0;
};
struct Offer {
  Buffer region{};   // kRegionBytes, every right
  Buffer read_only;  // these: kSmallBytes
  Buffer write_only;
  Buffer foreign;                   // every right, of another protection domain
  Buffer revoked;                   // deregistered before the Offer was made
  Buffer spare;                     // every right, to be invalidated
  std::uint16_t private_bytes = 0;  // of the Request, as the application got them
  std::uint32_t private_crc = 0;
};
[[nodiscard]] raw::Bytes encode(const Offer& offer);
[[nodiscard]] std::optional<Offer> decode_offer(raw::View bytes);

enum class CommandKind : std::uint8_t {
  kStatus = 0,
  kSend = 1,        // `count` Sends of `size` octets
  kWrite = 2,       // one RDMA Write of `size` octets to stag, to
  kRead = 3,        // `count` Reads of `size` octets each from stag, to; posted at once
  kDisconnect = 4,  // no Report
};
struct Command {
  CommandKind kind = CommandKind::kStatus;
  std::uint32_t size = 0;
  std::uint32_t count = 1;
  Buffer target{};
};
[[nodiscard]] raw::Bytes encode(const Command& command);
[[nodiscard]] std::optional<Command> decode_command(raw::View bytes);

struct Report {
  static constexpr std::uint8_t kSolicited = 1, kInvalidated = 2, kImmediate = 4;
  std::uint8_t flags = 0;
  std::uint32_t bytes = 0;  // of the message; kRead: of what was read
  std::uint32_t crc = 0;    // CRC32C of the same
  std::uint32_t invalidated = 0;
  std::uint64_t immediate = 0;
  std::uint32_t damage = 0;       // buffers found changed that nobody may change, ever
  std::uint32_t connections = 0;  // at this moment
};
[[nodiscard]] raw::Bytes encode(const Report& report);
[[nodiscard]] std::optional<Report> decode_report(raw::View bytes);

}  // namespace weft::selftest
