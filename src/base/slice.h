// A run of memory, the unit in which the core speaks to a transport. Same layout as POSIX iovec, so
// that a kernel transport passes lists of them on without copying.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

struct Slice {
  std::uint8_t* data;  // not initialized: gather lists are long, and mostly unused
  std::size_t size;
};

}  // namespace weft
