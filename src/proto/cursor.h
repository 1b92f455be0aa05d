// Where the next payload octet of a list of SGEs lies.
//
// Value; borrows the list.
#pragma once

#include <weft/types.h>

#include <cstddef>
#include <cstdint>

namespace weft::proto {

struct Cursor {
  const Sge* sge = nullptr;
  std::uint32_t left = 0;    // SGEs from `sge` on
  std::uint32_t offset = 0;  // in *sge

  // Goes on by `n` octets, and over SGEs that are used up or empty.
  void advance(std::size_t n) noexcept;
  // Octets from here to the end of this SGE. REQUIRES: there is one.
  [[nodiscard]] std::uint32_t here() const noexcept { return sge->length - offset; }
};

}  // namespace weft::proto
