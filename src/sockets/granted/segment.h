// The memory that both ends of a connection share: made by one, found by the other by its id.
//
// An id names other memory in another IPC namespace, and may be used again. So the segment says
// itself which connection it is for, and holds a number that only its maker and the registry know.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "sockets/grant/grant_words.h"
#include "sockets/granted/rendezvous_post.h"

namespace weft::sockets::granted {

inline constexpr std::uint64_t kRingBytes = 128 * 1024;

// All zero, but for what its maker sets.
struct Segment {
  std::uint64_t nonce;
  Key key;
  std::array<std::atomic<std::uint32_t>, 2> cores;  // where each end ran last, and 1; 0: not known
  std::array<GrantShared, 2> words;                 // of the octets from end 0, from end 1
  alignas(4096) std::array<std::array<std::uint8_t, kRingBytes>, 2> rings;
};

namespace segments {

// Null, and made.segment -1: there is none to be had. It goes when both ends have detached it.
[[nodiscard]] Segment* make(const Key& key, rendezvous::Made& made);
// Null: not the segment of this connection.
[[nodiscard]] Segment* attach(const Key& key, const rendezvous::Made& made);
void detach(Segment* segment);

}  // namespace segments
}  // namespace weft::sockets::granted
