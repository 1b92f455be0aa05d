// A file here is compared with one of the server without moving its octets.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "files/client/data_client.h"

namespace weft::files {

// How many of the first `bytes` octets of both are the same, in blocks as long as `room`. Both ends
// sum at the same time. `path` is for failures.
// REQUIRES: nothing is outstanding.
[[nodiscard]] Outcome<std::uint64_t> equal_by_sums(Client& client, std::uint64_t handle, int fd,
                                                   std::uint64_t bytes,
                                                   std::span<std::uint8_t> room,
                                                   const std::string& path);

}  // namespace weft::files
