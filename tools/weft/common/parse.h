// Reading what users type: sizes, times, lists, addresses. Every failure says what was wrong and
// what would have been right. Any thread. Pure functions, but for those of addresses: these resolve
// names, and print a hint on stderr where the text can mean something else.
#pragma once

#include <weft/address.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

// Bytes. A plain number, or one with a suffix (any case): k, M, G and KiB, MiB, GiB are powers of
// 1024, as in most benchmarks; kB, MB, GB are powers of 1000; B is one. A fraction is
// fine if whole bytes come out ("1.5k" is 1536).
[[nodiscard]] Outcome<std::uint64_t> parse_size(std::string_view text);

// A whole number from `low` to `high`.
[[nodiscard]] Outcome<std::uint64_t> parse_count(std::string_view text, std::uint64_t low,
                                                 std::uint64_t high);

// Seconds: "0.5", "2s", "200ms", "50us", "1.5m" (minutes). Not negative.
[[nodiscard]] Outcome<double> parse_seconds(std::string_view text);

[[nodiscard]] Outcome<bool> parse_on_off(std::string_view text);

// "a,b,c" -> {"a", "b", "c"}; blanks around the items go. An empty text has no items.
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);

// "64..1M": the powers of two in that range, and both ends.
[[nodiscard]] Outcome<std::vector<std::uint64_t>> parse_sweep(std::string_view text);

// "KEY=VALUE".
[[nodiscard]] Outcome<std::pair<std::string, std::string>> parse_assignment(std::string_view text);

// A peer: "HOST", "HOST:PORT", "[V6]:PORT" (common/where.h).
[[nodiscard]] Outcome<SocketAddress> parse_peer(std::string_view text, std::uint16_t default_port);
// Where to listen: "PORT" for every address of the machine, "ADDRESS:PORT", or "ADDRESS".
[[nodiscard]] Outcome<SocketAddress> parse_listen(std::string_view text,
                                                  std::uint16_t default_port);

// The shortest exact way to say a size: "64 B", "4 KiB", "50 KB", "1400 KB", "1 MiB".
[[nodiscard]] std::string format_size(std::uint64_t bytes);
// Three significant digits and an SI prefix: "9.42 G", "353 k".
[[nodiscard]] std::string format_si(double value);

}  // namespace weft::cli
