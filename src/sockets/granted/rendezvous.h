// Where the ends of a connection find each other: a table in memory that the processes of one user
// share, /dev/shm/weft-sockets-UID.
//
// An end posts the addresses and ports of its connection, with the cookie of its network namespace.
// The second end to come makes the segment, and leaves its id for the first. Nobody waits: an end
// whose peer does not come stays with TCP. A process of the same user can write nonsense here; it
// gains no more than that a connection stays TCP or ends up with a segment of that process's, which
// the counts of both ends have to agree with before it is used.
//
// Threads: any.
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
  std::uint32_t generation = 0;
};

namespace rendezvous {

enum class Found : std::uint8_t {
  kLater,   // another process is at the table
  kPosted,  // `ticket` names the entry
  kPeer,    // the peer has posted, and waits for a segment's id: give()
  kNo,      // no table, or no room in it
};
// Posts end `end` of `key`, whose socket has the cookie. kPeer: the table is locked until give().
[[nodiscard]] Found post(const Key& key, unsigned end, std::uint64_t cookie, Ticket& ticket);
// After kPeer. -1: no segment could be made, the entry is removed.
void give(const Ticket& ticket, int segment);

enum class Answer : std::uint8_t { kNotYet, kSegment, kGone };
// Tells what has become of a posted entry.
[[nodiscard]] Answer look(const Ticket& ticket, int& segment);
// Removes it; soon, if another process is at the table.
void withdraw(const Ticket& ticket);

}  // namespace rendezvous
}  // namespace weft::sockets::granted
