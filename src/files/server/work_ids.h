// Completions of a session's queue pair: the wr_id tells what they are of. An address is even, so
// an odd number is a place in a ring or a table.
//
// Values; any thread.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "files/protocol/registered.h"

namespace weft::files {

enum class WorkKind : std::uint8_t {
  kPiece = 0,    // of what the client reads: the address of a readsend::Piece
  kReceive = 1,  // a request, in this slot
  kChunk = 2,    // of what it writes: the address of a Chunk
  kReply = 3,    // in this slot
  kPage = 5,     // of a list: this page
};

inline constexpr std::uint64_t kAddressKindBits = 2, kSlotKindBits = 7;

[[nodiscard]] inline std::uint64_t work_id(WorkKind kind, const void* object) {
  const std::uint64_t address = address_of(object);
  assert((address & (kAddressKindBits | 1U)) == 0);
  return address | static_cast<std::uint64_t>(kind);
}
[[nodiscard]] constexpr std::uint64_t work_id(WorkKind kind, std::size_t slot) {
  return std::uint64_t{slot} << 3U | static_cast<std::uint64_t>(kind);
}
[[nodiscard]] constexpr WorkKind kind_of(std::uint64_t wr_id) {
  return static_cast<WorkKind>(wr_id & ((wr_id & 1U) != 0 ? kSlotKindBits : kAddressKindBits));
}
[[nodiscard]] constexpr std::size_t slot_of(std::uint64_t wr_id) { return wr_id >> 3U; }
template <class Object>
[[nodiscard]] Object& object_of(std::uint64_t wr_id) {
  return *reinterpret_cast<Object*>(wr_id & ~kAddressKindBits);
}

}  // namespace weft::files
