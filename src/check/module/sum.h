// A sum over memory of the program, which may have been unmapped.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "check/observer.h"

namespace weft::check {

// Nothing: it can't be read. Of large memory, only some pieces count. Any thread.
[[nodiscard]] std::optional<std::uint64_t> sum_of(std::span<const Octets> octets);

}  // namespace weft::check
