// The hello: 64 octets that each end of a wired connection says before the RDMAP stream begins, in
// place of the MPA Request and Reply.
//
//    0  8   magic "WEFTROCE", so that no iWARP peer can be mistaken for one
//    8  1   version, 1
//    9  1   kind: 0 request (of the end that connects), 1 answer, 2 challenge, 3 proof
//   10  1   verdict of an answer; else 0
//   11  1   flags: bit 0, CRC32C is wanted; bit 1, a seal of 32 octets follows; the others 0
//   12  16  GID of the sender
//   28  16  GID of the receiver, as the sender believes
//   44  4   queue pair number of the sender
//   48  4   queue pair number of the receiver
//   52  4   PSN that the sender expects first
//   56  1   queue pair type: 2 RC, 3 UC (as in <infiniband/verbs.h>)
//   57  1   Reads and atomics that the sender serves at once
//   58  1   minimum RNR timer of the sender, as verbs encode it
//   59  1   reserved, 0
//   60  4   generation: how often the sender has been wired before, so that logs can tell
//
// Challenge, proof and seals are said where both ends share a secret (greeting.h); of challenge and
// proof the fields behind octet 52 mean nothing.
//
// All numbers are big-endian. Values only: no I/O, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace weft::roce {

using Gid = std::array<std::uint8_t, 16>;

// One end of a wired connection.
struct End {
  Gid gid{};
  std::uint32_t number = 0;
  auto operator<=>(const End&) const = default;
};

enum class QpType : std::uint8_t { kRc = 2, kUc = 3 };

enum class HelloKind : std::uint8_t { kRequest = 0, kAnswer = 1, kChallenge = 2, kProof = 3 };

enum class Verdict : std::uint8_t {
  kAccept = 0,
  kNotYet = 1,       // the queue pair is not wired to the asker, or not yet: ask again
  kNoSuchQp = 2,     // there is none of this number: ask again, it may come
  kBusy = 3,         // it is connected, or about to be, in another way: ask again
  kOtherType = 4,    // it is of another type: asking again is of no use
  kOtherSecret = 5,  // it has another secret, or only one end has one: likewise
};
[[nodiscard]] std::string_view describe(Verdict verdict) noexcept;

struct Hello {
  static constexpr std::size_t kSize = 64;

  HelloKind kind = HelloKind::kRequest;
  Verdict verdict = Verdict::kAccept;
  bool crc = true;
  bool sealed = false;
  End from;
  End to;
  std::uint32_t psn = 0;
  QpType type = QpType::kRc;
  std::uint8_t reads_served = 0;
  std::uint8_t min_rnr_timer = 0;
  std::uint32_t generation = 0;

  bool operator==(const Hello&) const = default;
};

// Reads one hello; on error `in` has not moved.
//   kTruncated      fewer than kSize octets
//   kBadKey         not a hello at all
//   kBadRevision    of a version that is not spoken here
//   kReservedBits   something that has to be zero is not
//   kProtocol       a field is out of its range
[[nodiscard]] Result<Hello> decode_hello(ByteReader& in) noexcept;
// Appends kSize octets. REQUIRES: room for them.
void encode(const Hello& hello, ByteWriter& out) noexcept;

}  // namespace weft::roce
