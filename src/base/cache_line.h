// What one CPU writes and another reads is kept this far apart from what neither shares.
#pragma once

#include <cstddef>

namespace weft {

inline constexpr std::size_t kCacheLineBytes = 64;

}  // namespace weft
