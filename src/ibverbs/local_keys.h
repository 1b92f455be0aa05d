// The lkeys that a program gets under `weft run --check`: other numbers than the rkeys, so that one
// in place of the other is seen. The engine has one number for both.
//
// Of SGEs only. An rkey goes to the peer as the program has it: that of the peer may be the number
// of an lkey here.
//
// Any thread. Off, nothing of this runs.
#pragma once

#include <cstdint>

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// The lkey that the program gets for a new key of the engine.
[[nodiscard]] std::uint32_t give_lkey(const MemoryRegion& region);
// Whether the program got it as an lkey.
[[nodiscard]] bool is_lkey(std::uint32_t key);
// The engine's key: that behind an lkey, else the number itself.
[[nodiscard]] std::uint32_t engine_key(std::uint32_t key);

}  // namespace weft::ibverbs
