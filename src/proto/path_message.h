// Messages by which two Weft ends of one machine agree on the path that their octets take: RDMA
// Writes of no payload, of which no receiver checks STag or TO (RFC 5041 5.2, RFC 5040 5.2). To any
// other peer they are Writes of nothing.
//
// Values, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace weft::proto {

// The STag; the TO is the value.
enum class PathWord : std::uint32_t {
  kName = 0x57665101,      // initiator: half of a ticket for a ring
  kProof = 0x57665102,     // initiator: the other half
  kAnswered = 0x57665103,  // responder: the ring is there. This and all below: value is the proof
  kRefused = 0x57665104,   // either: no ring; the stream stays on TCP
  kByRing = 0x57665105,    // either: what follows in this direction comes through the ring
  kByTcp = 0x57665106,     // either: what follows in this direction comes by TCP again
  kAgain = 0x57665107,     // initiator, before a ticket: the proof of an earlier ring, kept here
};

struct PathMessage {
  PathWord word;
  std::uint64_t value;

  // The last octets in this direction on the old path.
  [[nodiscard]] bool changes_path() const noexcept {
    return word == PathWord::kByRing || word == PathWord::kByTcp;
  }
};

// The message in a ULPDU, if it is one.
[[nodiscard]] std::optional<PathMessage> path_message_of(std::span<const std::uint8_t> ulpdu);

}  // namespace weft::proto
