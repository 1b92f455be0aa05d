// Messages between the preload library and the relay, and the frame by which two programs of one
// machine find each other over a TCP connection of theirs.
//
// One request is one message on a SOCK_SEQPACKET connection to the relay's abstract name, with
// descriptors; the relay answers with one RelayReply. Values only; any thread.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft::sockets {

using Secret = std::array<std::uint8_t, 16>;

enum class RelayOp : std::uint32_t {
  // fds: TCP socket, memory, other end of the pair. Keeps them until a process of this machine
  // claims them with the token; should the TCP connection end or say anything else, goes on with
  // a plain connection to `peer`.
  kDeposit = 1,
  // The process that accepted the connection asks. No fds; the answer has memory and pair.
  kClaim = 2,
  // fds as kDeposit. Begins RDMA as initiator, and goes on with a plain connection where the peer
  // does not want it and `fall_back` is set.
  kConnect = 3,
  // fds as kDeposit. RDMA as responder.
  kServe = 4,
};

struct RelayRequest {
  static constexpr std::uint32_t kMagic = 0x57667231;
  std::uint32_t magic = kMagic;
  RelayOp op{};
  Secret token{};
  std::uint32_t fall_back = 0;
  socklen_t peer_length = 0;
  sockaddr_storage peer{};
};

struct RelayReply {
  std::int32_t error = 0;  // an errno
};
// To kConnect: the peer declined RDMA a moment ago, and was not asked again. Nothing else on the
// way to a relay gives this errno.
inline constexpr std::int32_t kDeclinedLately = EHOSTDOWN;

// The abstract name of a relay: a secret, so that nobody else can have taken it.
inline constexpr char kRelayPrefix[] = "weft-relay/";
// A program under Weft that listens has a datagram socket of this name and "PORT/ADDRESS".
inline constexpr char kListenPrefix[] = "weft-listen/";
// Other end of a socket that is relayed for a program without the preload library: what follows is
// a random number, then both addresses as sockaddrs of 28 octets.
inline constexpr char kRelayedPrefix[] = "weft-tcp/";

// A relay whose holder inherited the socket over exec waits until the holder touches it: a program
// may inherit sockets that it never uses, while its parent goes on reading. It has a datagram
// socket of this name and the random number; any datagram makes it begin.
inline constexpr char kBeginPrefix[] = "weft-begin/";
inline constexpr std::size_t kRelayedUnique = 8;

// --- the greeting: an MPA Request (RFC 5044 7.1.1) whose private data names relay and token ---

inline constexpr std::size_t kMpaHeader = 20;
inline constexpr std::size_t kMpaPrivateMax = 512;
inline constexpr char kMpaKey[] = "MPA ID Req Frame";
inline constexpr std::size_t kMpaKeyBytes = 16;
inline constexpr char kGreetingMagic[] = "weft-ring/1";  // with its final zero: 12 octets
inline constexpr std::size_t kGreetingBytes = kMpaHeader + 12 + 2 * sizeof(Secret);

using Greeting = std::array<std::uint8_t, kGreetingBytes>;

inline Greeting make_greeting(const Secret& relay, const Secret& token) {
  Greeting out{};
  std::memcpy(out.data(), kMpaKey, kMpaKeyBytes);
  out[16] = 0x40;  // CRC wanted, as MPA's default
  out[17] = 1;     // revision
  out[18] = 0;
  out[19] = kGreetingBytes - kMpaHeader;
  std::memcpy(&out[kMpaHeader], kGreetingMagic, 12);
  std::memcpy(&out[kMpaHeader + 12], relay.data(), relay.size());
  std::memcpy(&out[kMpaHeader + 12 + sizeof(Secret)], token.data(), token.size());
  return out;
}

enum class Opening { kOther, kShort, kMpa, kGreeting };

// Classifies the first octets of a connection. kShort: `needed` octets tell more.
inline Opening read_opening(std::span<const std::uint8_t> in, std::size_t& needed) {
  const std::size_t compared = in.size() < kMpaKeyBytes ? in.size() : kMpaKeyBytes;
  if (std::memcmp(in.data(), kMpaKey, compared) != 0) return Opening::kOther;
  needed = kMpaHeader;
  if (in.size() < kMpaHeader) return Opening::kShort;
  const std::size_t length = std::size_t{in[18]} << 8U | in[19];
  if (length > kMpaPrivateMax) return Opening::kOther;
  needed = kMpaHeader + length;
  if (in.size() < needed) return Opening::kShort;
  if (needed == kGreetingBytes && std::memcmp(&in[kMpaHeader], kGreetingMagic, 12) == 0) {
    return Opening::kGreeting;
  }
  return Opening::kMpa;
}

}  // namespace weft::sockets
