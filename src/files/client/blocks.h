// How a client moves a file: in blocks, several of them in flight.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft::files {

inline constexpr std::uint32_t kBlockBytes = 1U << 20U;
inline constexpr std::uint32_t kBlocks = 8;  // in flight

// A file that takes up less room than its length and this has holes.
inline constexpr std::uint64_t kHoleMin = std::uint64_t{64} << 10U;

// A file that was changed a moment ago is looked at again until its times can tell versions apart.
// 2.2 s in all: file systems of other machines may count in seconds.
inline constexpr std::chrono::milliseconds kSettlePause{20};
inline constexpr int kSettleTries = 110;
inline constexpr int kSettleChanges = 10;  // looks that found it changed once more

}  // namespace weft::files
