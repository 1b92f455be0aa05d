// What the board's agent and the test's program on the workstation say to each other. The
// workstation sends commands, the agent carries them out and reports each one. All numbers are
// big-endian.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::boards {

inline constexpr std::uint16_t kPort = 4791;
inline constexpr std::uint32_t kMagic = 0x57424431;  // first word of the agent's private data

enum class AgentOp : std::uint32_t {
  kFill = 1,      // memory[local, length) becomes the pattern of seed `arg`
  kWrite = 2,     // RDMA Write of memory[local, length) to (stag, to)
  kRead = 3,      // RDMA Read of (stag, to) into memory[local, length)
  kSend = 4,      // Send of memory[local, length)
  kWriteImm = 5,  // Write, then Immediate Data `arg`
  kChecksum = 6,  // the report's value is the CRC32C of memory[local, length)
  kClose = 7,     // closes the connection in good order
  kHalt = 8,      // the board stops, as if it had lost power
  kMarkers = 9,   // from the next connection on: markers in what the board receives (arg 1)
  kTime = 10,     // the report's value is the board's clock in nanoseconds
  kStream = 11,   // `arg` Writes of memory[local, length) to (stag, to), one after the other
  kStack = 12,    // the report's value is how many octets of its stack the board never used
};

// Command: op, stag, to (64 bits), length, local, arg (64 bits), number.
inline constexpr std::size_t kCommandSize = 36;
// Report: op, number, status (a WcStatus; 255: refused), value (64 bits).
inline constexpr std::size_t kReportSize = 20;
// Private data of the agent: magic, stag of its memory, its length, frames dropped so far.
inline constexpr std::size_t kAgentDataSize = 16;

inline constexpr std::uint32_t kRefused = 255;

// Octet `i` of the pattern with seed `seed`.
constexpr std::uint8_t pattern(std::uint64_t seed, std::uint32_t i) {
  const std::uint32_t x = (i + static_cast<std::uint32_t>(seed) * 7919U) * 2654435761U;
  return static_cast<std::uint8_t>(x >> 24U);
}

}  // namespace weft::boards
