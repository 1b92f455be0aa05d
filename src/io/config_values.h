// Text to value and back, for the configuration. Pure functions.
#pragma once

#include <weft/config.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::io {

// "on", "off"; also yes, no, true, false, 1, 0.
[[nodiscard]] std::optional<bool> parse_switch(std::string_view text);
// "5s", "200ms", "50us", "100ns", "2min"; "0" and "off" need no unit. At most a day.
[[nodiscard]] std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);
// "65536", "256k", "4m", "1g".
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_number(std::string_view text);

// "eth1,eth0", or nothing. The kernel lets names of interfaces be nearly anything.
[[nodiscard]] bool is_interface_list(std::string_view text);

[[nodiscard]] std::string duration_text(std::chrono::nanoseconds d);

}  // namespace weft::io
