#include "lab/link.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

namespace weft::lab {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array kRates{Unit{"bit", 1}, Unit{"kbit", 1e3}, Unit{"Mbit", 1e6},
                            Unit{"Gbit", 1e9}};
constexpr std::array kTimes{Unit{"ns", 1}, Unit{"us", 1e3}, Unit{"ms", 1e6}, Unit{"s", 1e9}};
constexpr std::array kSizes{Unit{"B", 1}, Unit{"kB", 1e3}, Unit{"MB", 1e6}};
constexpr double kMostBits = 1e12;
constexpr double kMostNs = 1e10;
constexpr double kMostBytes = 1e9;

// A number above 0 with its unit, at most `most`.
template <std::size_t N>
std::optional<double> amount(std::string_view text, const std::array<Unit, N>& units, double most) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number <= 0) return std::nullopt;
  const std::string_view unit(end, text.data() + text.size());
  const auto* const known =
      std::ranges::find_if(units, [&](const Unit& one) { return one.name == unit; });
  if (known == units.end() || number * known->factor > most) return std::nullopt;
  return std::max(1.0, std::round(number * known->factor));
}

tl::unexpected<std::string> wrong(std::string_view word, std::string_view legal) {
  return tl::unexpected("'" + std::string(word) + "': " + std::string(legal));
}

}  // namespace

tl::expected<Link, std::string> parse_link(std::string_view text) {
  Link link;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    if (name == "rate" && link.bits_per_s == 0) {
      const auto rate = amount(value, kRates, kMostBits);
      if (!rate) return wrong(word, "a rate is like 100Mbit or 10Gbit, at most 1000Gbit");
      link.bits_per_s = static_cast<std::uint64_t>(*rate);
    } else if (name == "delay" && link.delay.count() == 0) {
      const auto delay = amount(value, kTimes, kMostNs);
      if (!delay) return wrong(word, "a delay is like 50us, 5ms or 1s, at most 10s");
      link.delay = std::chrono::nanoseconds(static_cast<std::int64_t>(*delay));
    } else if (name == "queue" && link.queue_bytes == 0) {
      const auto queue = amount(value, kSizes, kMostBytes);
      if (!queue) return wrong(word, "a queue is like 64kB or 1MB, at most 1000MB");
      link.queue_bytes = static_cast<std::uint64_t>(*queue);
    } else {
      return wrong(word, "write each of rate=, delay= and queue= at most once");
    }
  }
  if (link.queue_bytes != 0 && link.bits_per_s == 0) {
    return wrong("queue=", "without rate= nothing waits, so there is no queue to limit");
  }
  return link;
}

std::uint64_t queue_of(const Link& link) {
  constexpr double kLeast = 256 << 10;
  if (link.queue_bytes != 0) return link.queue_bytes;
  const double seconds = 2 * std::chrono::duration<double>(link.delay).count();
  const double under_way = static_cast<double>(link.bits_per_s) / 8 * seconds;
  return static_cast<std::uint64_t>(std::clamp(2 * under_way, kLeast, kMostBytes));
}

}  // namespace weft::lab
