// Private functions of libibverbs that Weft answers itself.
#pragma once

#include <string_view>

namespace weft::ibverbs {

// The function of that name, or null when it is the real library's.
[[nodiscard]] void* private_function(std::string_view name);

}  // namespace weft::ibverbs
