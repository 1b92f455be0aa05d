// Data that one CPU writes and another reads is kept this far apart from what neither shares.
#pragma once

#include <cstddef>

#include "base/profile.h"

namespace weft {

inline constexpr std::size_t kCacheLineBytes = profile::kCacheLineBytes;

}  // namespace weft
