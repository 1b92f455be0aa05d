// Numbers nobody can guess, from the kernel.
#pragma once

#include <cstdint>

namespace weft::verbs {

// Buffered per thread; a child of fork() never repeats its parent's. Any thread.
[[nodiscard]] std::uint32_t random_u32();
[[nodiscard]] std::uint64_t random_u64();

}  // namespace weft::verbs
