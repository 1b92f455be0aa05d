#include "weft/common/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "weft/common/message.h"
#include "weft/common/where.h"

namespace weft::cli {
namespace {

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Splits "1.5k" into the number and the lower-case rest. False: it does not start with a number.
// Only digits and one point: strtod and from_chars would also take "inf", "nan" and "1e9".
bool split_number(std::string_view text, double& number, std::string& suffix) {
  text = trim(text);
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view digits = text.substr(0, end);
  if (digits.empty() || digits == "." || std::ranges::count(digits, '.') > 1) return false;
  const auto [at, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || at != digits.data() + digits.size()) return false;
  suffix = lower(trim(text.substr(end)));
  return true;
}

struct Suffix {
  std::string_view name;
  double factor;
};
constexpr double kKi = 1024.0;
constexpr Suffix kSizeSuffixes[] = {
    {"", 1},         {"b", 1},          {"k", kKi},  {"kib", kKi},         {"kb", 1e3},
    {"m", kKi* kKi}, {"mib", kKi* kKi}, {"mb", 1e6}, {"g", kKi* kKi* kKi}, {"gib", kKi* kKi* kKi},
    {"gb", 1e9},
};
constexpr Suffix kTimeSuffixes[] = {
    {"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"m", 60}, {"min", 60},
};

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return c >= '0' && c <= '9'; });
}

// `text` is what the user wrote for `where`.
Outcome<SocketAddress> resolve(const HostPort& where, std::string_view text,
                               std::uint16_t default_port) {
  if (!where.hint.empty()) say(where.hint);
  const std::uint16_t port = where.port.value_or(default_port);
  if (where.host.empty()) return SocketAddress::any(AF_INET6, port);
  const bool ipv6 = where.host.find(':') != std::string::npos;
  const auto address = SocketAddress::parse(ipv6 ? "[" + where.host + "]" : where.host, port);
  if (address) return *address;
  return failure(fmt::format("the name in '{}' has no address; check its spelling", text));
}

}  // namespace

Outcome<std::uint64_t> parse_size(std::string_view text) {
  const auto bad = [&] {
    return usage_error(fmt::format(
        "'{}' is not a size; write bytes, or a number with k, M, G (powers of 1024, also KiB, "
        "MiB, GiB) or kB, MB, GB (powers of 1000)",
        text));
  };
  double number = 0;
  std::string suffix;
  if (!split_number(text, number, suffix)) return bad();
  const auto* unit = std::ranges::find(kSizeSuffixes, suffix, &Suffix::name);
  if (unit == std::ranges::end(kSizeSuffixes)) return bad();
  const double bytes = number * unit->factor;
  if (bytes != std::floor(bytes)) return bad();
  if (bytes > 1e15) return usage_error(fmt::format("the size '{}' is too large", text));
  return static_cast<std::uint64_t>(bytes);
}

Outcome<std::uint64_t> parse_count(std::string_view text, std::uint64_t low, std::uint64_t high) {
  const std::string_view digits = trim(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (!all_digits(digits) || error != std::errc{} || end != digits.data() + digits.size() ||
      value < low || value > high) {
    return usage_error(fmt::format("'{}' is not a whole number from {} to {}", text, low, high));
  }
  return value;
}

Outcome<double> parse_seconds(std::string_view text) {
  double number = 0;
  std::string suffix;
  if (split_number(text, number, suffix)) {
    const auto* unit = std::ranges::find(kTimeSuffixes, suffix, &Suffix::name);
    if (unit != std::ranges::end(kTimeSuffixes)) return number * unit->factor;
  }
  return usage_error(
      fmt::format("'{}' is not a time; write seconds, or a number with us, ms, s or m", text));
}

Outcome<bool> parse_on_off(std::string_view text) {
  const std::string word = lower(trim(text));
  if (word == "on") return true;
  if (word == "off") return false;
  return usage_error(fmt::format("'{}' is not a switch; write on or off", text));
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  if (trim(text).empty()) return items;
  while (true) {
    const std::size_t comma = text.find(',');
    items.emplace_back(trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

Outcome<std::vector<std::uint64_t>> parse_sweep(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    return usage_error(
        fmt::format("'{}' is not a range of sizes; write FROM..TO, as 64..1M", text));
  }
  const auto from = parse_size(text.substr(0, dots));
  if (!from) return tl::unexpected(from.error());
  const auto to = parse_size(text.substr(dots + 2));
  if (!to) return tl::unexpected(to.error());
  if (*from == 0 || *from > *to) {
    return usage_error(fmt::format("the range '{}' is empty; it must rise, from 1 or more", text));
  }
  std::vector<std::uint64_t> sizes{*from};
  std::uint64_t power = 1;
  while (power <= *from) power *= 2;
  for (; power < *to; power *= 2) sizes.push_back(power);
  if (*to != *from) sizes.push_back(*to);
  return sizes;
}

Outcome<std::pair<std::string, std::string>> parse_assignment(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    return usage_error(
        fmt::format("'{}' is not KEY=VALUE; `weft info --all` lists the keys", text));
  }
  return std::pair(std::string(trim(text.substr(0, equals))),
                   std::string(trim(text.substr(equals + 1))));
}

Outcome<SocketAddress> parse_peer(std::string_view text, std::uint16_t default_port) {
  const auto where = parse_host_port(text);
  if (!where) return tl::unexpected(where.error());
  return resolve(*where, text, default_port);
}

Outcome<SocketAddress> parse_listen(std::string_view text, std::uint16_t default_port) {
  const auto where = parse_listen_place(text);
  if (!where) return tl::unexpected(where.error());
  return resolve(*where, text, default_port);
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::uint64_t kKibi = 1024;
  constexpr std::uint64_t kMebi = kKibi * kKibi;
  constexpr std::uint64_t kGibi = kMebi * kKibi;
  if (bytes >= kGibi && bytes % kGibi == 0) return fmt::format("{} GiB", bytes / kGibi);
  if (bytes >= kMebi && bytes % kMebi == 0) return fmt::format("{} MiB", bytes / kMebi);
  if (bytes >= kKibi && bytes % kKibi == 0) return fmt::format("{} KiB", bytes / kKibi);
  if (bytes >= 10000 && bytes % 1000 == 0) return fmt::format("{} KB", bytes / 1000);
  return fmt::format("{} B", bytes);
}

std::string format_si(double value) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T"};
  std::size_t step = 0;
  while (value >= 999.5 && step + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++step;
  }
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, kPrefixes[step]);
}

}  // namespace weft::cli
