#include "proto/cursor.h"

namespace weft::proto {

void Cursor::advance(std::size_t n) noexcept {
  offset += static_cast<std::uint32_t>(n);
  while (left != 0 && offset >= sge->length) {
    offset -= sge->length;
    ++sge;
    --left;
  }
}

}  // namespace weft::proto
