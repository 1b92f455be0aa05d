// Counters of a device or a QP. Values only grow; reading them costs the data path nothing.
#pragma once

#include <array>
#include <cstdint>

#pragma GCC visibility push(default)
namespace weft {

struct Counters {
  std::uint64_t tx_bytes = 0, rx_bytes = 0;  // TCP payload octets
  std::uint64_t tx_fpdus = 0, rx_fpdus = 0;
  std::uint64_t tx_calls = 0, rx_calls = 0;                    // system calls that moved bytes
  std::uint64_t rx_empty = 0, tx_blocked = 0;                  // calls that found nothing / no room
  std::array<std::uint64_t, 16> tx_messages{}, rx_messages{};  // by RDMAP opcode
  std::uint64_t crc_errors = 0;
  std::uint64_t terminates_sent = 0, terminates_received = 0;
  std::uint64_t wakeups = 0;  // sleeps of the engine's thread that ended
  std::uint64_t polls = 0, empty_polls = 0;
  std::uint64_t connections_opened = 0, connections_refused = 0;  // set-ups that ended well / badly
  std::uint64_t small_segments = 0;    // non-final segments under 128 octets, RFC 5042 6.4.4
  std::uint64_t messages_dropped = 0;  // of unreliable QPs, that came and could not be taken
};

}  // namespace weft
#pragma GCC visibility pop
