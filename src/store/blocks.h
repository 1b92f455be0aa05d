// How a client moves a file: in blocks, several of them in flight.
#pragma once

#include <cstdint>

namespace weft::store {

inline constexpr std::uint32_t kBlockBytes = 1U << 20U;
inline constexpr std::uint32_t kBlocks = 8;  // in flight

}  // namespace weft::store
