// The ends of a connection tell one another this, by the registry.
#pragma once

#include <array>
#include <cstdint>

namespace weft::sockets::granted {

// One connection in this machine, the same for both ends.
struct Key {
  // Family, the smaller address and port, the other; then the namespace's cookie.
  std::array<std::uint8_t, 48> octets{};
};

// An entry that this process posted.
struct Ticket {
  int index = -1;
  std::uint64_t generation = 0;
  std::uint32_t looks = 0;  // that it took so far to find the peer
  std::int64_t since = 0;   // monotonic time, in ns
};

namespace rendezvous {

// End `end` of `key`; its socket has the cookie.
struct Post {
  const Key& key;
  unsigned end;
  std::uint64_t cookie;
};

enum class Found : std::uint8_t {
  kLater,   // another process is at the table
  kPosted,  // the ticket names the entry
  kPeer,    // the peer has posted, and waits for the id of a segment, which nobody else will make
  kNo,      // no table, or no room in it
};

// A segment as its maker tells of it.
struct Made {
  int segment = -1;         // -1: none could be made, the entry is removed
  std::uint64_t nonce = 0;  // which the segment itself holds too
};

enum class Answer : std::uint8_t { kNotYet, kSegment, kGone };

}  // namespace rendezvous
}  // namespace weft::sockets::granted
