// The bytes of verified messages: every byte depends on its place and on the message's seed, so
// that bytes lost, repeated, swapped or left over from an earlier message do not pass.
//
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/command.h"

namespace weft::cli {

// The seed of one message of one connection.
[[nodiscard]] std::uint64_t pattern_seed(std::uint32_t connection, std::uint64_t message);

void fill_pattern(std::span<std::uint8_t> bytes, std::uint64_t seed);

struct Mismatch {
  std::size_t offset;
  std::uint8_t expected;
  std::uint8_t found;
};
// The first byte that is not as fill_pattern() would have left it.
[[nodiscard]] std::optional<Mismatch> check_pattern(std::span<const std::uint8_t> bytes,
                                                    std::uint64_t seed);

// "message 12 of connection 0: byte 4095 is 0x00 where 0x5a was sent".
[[nodiscard]] Failure describe_mismatch(std::uint32_t connection, std::uint64_t message,
                                        const Mismatch& mismatch);

}  // namespace weft::cli
