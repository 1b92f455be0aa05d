// What `weft stat` shows: counters per second, and what each system call achieved. Pure values.
#pragma once

#include <weft/monitor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace weft::cli {

// One direction of the wire. A quotient is absent when nothing was counted to divide by.
struct DirectionRates {
  std::array<double, 16> messages{};  // per second, by RDMAP opcode
  double bytes = 0;                   // per second, of TCP payload
  double fpdus = 0;
  double calls = 0;       // system calls that moved bytes
  double idle_calls = 0;  // that found nothing to read, or no room to write
  std::optional<double> fpdus_per_call;
  std::optional<double> bytes_per_call;
};

struct Rates {
  double seconds = 0;
  DirectionRates out, in;
  double polls = 0;
  double empty_polls = 0;
  std::optional<double> empty_share;  // of the polls, 0 to 1
  double wakeups = 0;
  double connections_opened = 0;
  double connections_refused = 0;
  std::uint64_t crc_errors = 0;  // counts, not rates: a single one matters
  std::uint64_t terminates_sent = 0;
  std::uint64_t terminates_received = 0;
};

// From `before` to `after`. A zero `before` gives averages since the device was opened.
[[nodiscard]] Rates rates_between(const ProcessCounters& before, const ProcessCounters& after);

// "write", "read request", ...: how an RDMAP opcode is called. Empty for one that does not exist.
[[nodiscard]] std::string_view opcode_name(std::size_t opcode);

}  // namespace weft::cli
