// All that comes from a descriptor.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace weft::cli {

// To its end. Nothing, with errno: it can't be read; EFBIG: there is more than `most`.
[[nodiscard]] std::optional<std::string> read_all(int fd, std::size_t most);

}  // namespace weft::cli
