// Which TCP port serves a port of rdma_cm (docs/rdma-cm-ports.md): a question and its answer, one
// UDP datagram each, between the asker and UDP port P, where P is the port of rdma_cm. 24 octets:
//
//    0  8   magic "WEFTPORT"
//    8  1   version, 1
//    9  1   kind: 1 question, 2 answer
//   10  2   question: P; answer: the TCP port that serves it
//   12  1   answer: what the device looks like, 0 iWARP, 1 RoCE-like; question: 0
//   13  3   reserved, 0
//   16  8   nonce of the question, which the answer repeats
//
// An answer is as long as its question, so nobody is made to send more than was sent. All numbers
// are big-endian. Values only: no I/O, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace weft {

enum class PortMapKind : std::uint8_t { kQuestion = 1, kAnswer = 2 };

struct PortMapMessage {
  static constexpr std::size_t kSize = 24;

  PortMapKind kind = PortMapKind::kQuestion;
  std::uint16_t port = 0;
  bool roce_like = false;
  std::uint64_t nonce = 0;

  bool operator==(const PortMapMessage&) const = default;
};

// Reads one message; on error `in` has not moved.
//   kTruncated      fewer than kSize octets
//   kBadKey         no such message
//   kBadRevision    of a version that is not spoken here
//   kReservedBits   something that has to be zero is not
//   kProtocol       a field is out of its range
[[nodiscard]] Result<PortMapMessage> decode_port_map(ByteReader& in) noexcept;
// Appends kSize octets. REQUIRES: room for them.
void encode(const PortMapMessage& message, ByteWriter& out) noexcept;

}  // namespace weft
