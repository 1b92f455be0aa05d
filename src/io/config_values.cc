#include "io/config_values.h"

#include <array>
#include <charconv>
#include <chrono>

namespace weft::io {

namespace {

struct Unit {
  std::string_view name;
  std::int64_t ns;
};
// Largest first: the printer takes the first that divides.
constexpr std::array<Unit, 6> kUnits = {{{"h", 3'600'000'000'000},
                                         {"min", 60'000'000'000},
                                         {"s", 1'000'000'000},
                                         {"ms", 1'000'000},
                                         {"us", 1'000},
                                         {"ns", 1}}};
constexpr std::int64_t kLongestNs = 86'400'000'000'000;

}  // namespace

std::optional<bool> parse_switch(std::string_view text) {
  if (text == "on" || text == "yes" || text == "true" || text == "1") return true;
  if (text == "off" || text == "no" || text == "false" || text == "0") return false;
  return std::nullopt;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || text.empty()) return std::nullopt;
  return value;
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  if (text == "0" || text == "off") return std::chrono::nanoseconds{0};
  const std::size_t digits = text.find_first_not_of("0123456789");
  if (digits == std::string_view::npos || digits == 0) return std::nullopt;
  const auto value = parse_number(text.substr(0, digits));
  if (!value) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (text.substr(digits) != unit.name) continue;
    if (*value > static_cast<std::uint64_t>(kLongestNs / unit.ns)) return std::nullopt;
    return std::chrono::nanoseconds{static_cast<std::int64_t>(*value) * unit.ns};
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  if (text.empty()) return std::nullopt;
  unsigned shift = 0;
  switch (text.back()) {
    case 'k':
    case 'K': shift = 10; break;
    case 'm':
    case 'M': shift = 20; break;
    case 'g':
    case 'G': shift = 30; break;
    default: break;
  }
  if (shift != 0) text.remove_suffix(1);
  const auto value = parse_number(text);
  if (!value || *value > ~std::uint64_t{0} >> shift) return std::nullopt;
  return *value << shift;
}

bool is_interface_list(std::string_view text) {
  constexpr std::size_t kMax = 511;
  return text.size() <= kMax && text.find_first_of("/: \t\r\n") == std::string_view::npos;
}

std::string duration_text(std::chrono::nanoseconds d) {
  if (d.count() == 0) return "0";
  for (const Unit& unit : kUnits) {
    if (d.count() % unit.ns == 0)
      return std::to_string(d.count() / unit.ns) + std::string(unit.name);
  }
  return std::to_string(d.count()) + "ns";
}

}  // namespace weft::io
