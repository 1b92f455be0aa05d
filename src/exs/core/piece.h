// A part of what an operation moves: memory, or a part of a file.
//
// Values.
#pragma once

#include <sys/types.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weft::exs {

class Region;

struct Piece {
  std::uint8_t* base = nullptr;
  std::size_t length = 0;
  std::shared_ptr<Region> region;  // null: not registered
  int fd = -1;                     // >= 0: `length` bytes of this file from `offset` on
  off_t offset = 0;
};

// Bytes [from, from + length) of the pieces, one call of `visit` (piece, offset, length) for each
// that has some.  REQUIRES: the pieces have as many.
template <class Visit>
void each_piece(const std::vector<Piece>& pieces, std::size_t from, std::size_t length,
                Visit visit) {
  for (const Piece& piece : pieces) {
    if (length == 0) return;
    if (from >= piece.length) {
      from -= piece.length;
      continue;
    }
    const std::size_t here = piece.length - from < length ? piece.length - from : length;
    visit(piece, from, here);
    length -= here;
    from = 0;
  }
  assert(length == 0);
}

}  // namespace weft::exs
