// Messages of the EXS protocol and what the two ends tell each other at set-up: values and bytes.
// docs/exs-protocol.md describes both for authors of another implementation.
//
// Pure functions over bytes: no allocation, no I/O, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft::exs {

inline constexpr std::uint32_t kMagic = 0x45585344;  // "EXSD"
inline constexpr std::uint16_t kProtocolVersion = 1;

// Limits of the protocol. A peer that goes beyond one breaks it.
inline constexpr std::size_t kSegmentsMax = 16;              // memory pieces in one advert
inline constexpr std::uint32_t kTransferMax = 1U << 30U;     // bytes of a message or an advert
inline constexpr std::uint32_t kAdvertsMax = 64;             // open in one direction
inline constexpr std::uint16_t kSlotsMin = 8;                // receive buffers of one end
inline constexpr std::uint16_t kSlotsMax = 1024;             //
inline constexpr std::uint32_t kImmediateMax = 64U * 1024U;  // bytes of payload in a message
inline constexpr std::uint32_t kRingMin = 4U * 1024U;        // and at least 4 x immediate
inline constexpr std::uint32_t kRingMax = 256U * 1024U * 1024U;

enum class Kind : std::uint8_t { kStream = 1, kPacket = 2 };

// Each end's offer, in the private data of the connection request and of its reply.
struct Hello {
  static constexpr std::size_t kSize = 44;  // fits rdma_cm's 56 bytes on every transport

  std::uint16_t version = kProtocolVersion;
  Kind kind = Kind::kStream;
  std::uint16_t slots = 0;            // receive buffers posted for the peer's messages
  std::uint16_t messages = 0;         // kPacket: messages that may wait for a receive
  std::uint32_t immediate_bytes = 0;  // payload that fits into a message
  std::uint32_t ring_bytes = 0;       // room for data that no receive waits for
  std::uint32_t ring_rkey = 0;        // kStream: where the peer writes it
  std::uint64_t ring_addr = 0;

  bool operator==(const Hello&) const = default;
};

// Why a connection request is refused; in the private data of the reject.
enum class Refusal : std::uint8_t { kNone = 0, kVersion = 1, kKind = 2, kBusy = 3, kMalformed = 4 };

struct Reject {
  static constexpr std::size_t kSize = 12;
  std::uint16_t version = kProtocolVersion;
  Refusal reason = Refusal::kMalformed;
};

// Empty: not an EXS offer, or one whose numbers break a limit. An offer of another version decodes
// to its version and nothing else.
[[nodiscard]] std::optional<Hello> decode_hello(std::span<const std::uint8_t> in);
void encode(const Hello& hello, std::span<std::uint8_t, Hello::kSize> out);
[[nodiscard]] std::optional<Reject> decode_reject(std::span<const std::uint8_t> in);
void encode(const Reject& reject, std::span<std::uint8_t, Reject::kSize> out);

enum class Type : std::uint8_t {
  kStart = 1,    // the connecting end's first message: iWARP lets it speak first
  kCredit,       // nothing but the counters of every header
  kData,         // payload inside the message
  kRing,         // stream: `length` bytes have been written to the ring
  kDirect,       // stream: `length` bytes have been written to the open adverts
  kAdvert,       // stream: memory of a waiting receive
  kCloseChain,   // stream: the receiver asks that no further advert of chain `aux` be used
  kChainClosed,  // stream: the answer
  kSource,       // packet: a message to be fetched from the sender's memory
  kDone,         // packet: message `seq` has been fetched, or dropped
  kWithdraw,     // packet: the sender wants message `seq` back
  kFinish,       // no data follows
  kFinished,     // the answer: everything before kFinish is here
};

// Flags of a message.
inline constexpr std::uint8_t kInChain = 1;     // kData: belongs to the open adverts, not the ring
inline constexpr std::uint8_t kWaitAll = 2;     // kAdvert: stays open until it is full
inline constexpr std::uint8_t kPersistent = 4;  // kSource: stays, no kDone for each receive
inline constexpr std::uint8_t kDropped = 8;     // kDone: nobody received it

struct Segment {
  static constexpr std::size_t kSize = 16;
  std::uint64_t addr = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;

  bool operator==(const Segment&) const = default;
};

struct Header {
  static constexpr std::size_t kSize = 40;

  Type type = Type::kCredit;
  std::uint8_t flags = 0;
  std::uint16_t segments = 0;  // that follow the header
  std::uint32_t length = 0;    // bytes of payload, of the transfer, or of the advert
  // Totals since the start, so that none can be lost or counted twice.
  std::uint32_t slots_returned = 0;     // receive buffers posted again
  std::uint32_t messages_consumed = 0;  // kPacket: messages that have left the waiting list
  std::uint64_t ring_consumed = 0;      // bytes that have left the ring
  std::uint64_t seq = 0;                // place in the stream, or number of the message
  std::uint32_t aux = 0;                // chain

  bool operator==(const Header&) const = default;
};

struct Message {
  Header header;
  std::array<Segment, kSegmentsMax> segments;
  std::span<const std::uint8_t> payload;  // of what was decoded; lives as long as that
};

// Why a message breaks the protocol; null: it is well formed. On success `out` borrows its payload
// from `in`.
[[nodiscard]] const char* decode(std::span<const std::uint8_t> in, Message& out);

void encode(const Header& header, std::span<std::uint8_t, Header::kSize> out);
void encode(const Segment& segment, std::span<std::uint8_t, Segment::kSize> out);

}  // namespace weft::exs
