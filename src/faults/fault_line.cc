#include "faults/fault_line.h"

#include <cmath>

namespace weft::faults {

std::optional<std::chrono::nanoseconds> time_of(std::string_view text) {
  constexpr struct {
    std::string_view unit;
    double ns;
  } kUnits[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  for (const auto& [unit, ns] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = number_of<double>(text.substr(0, text.size() - unit.size()));
    constexpr double kMostNs = 1e15;  // eleven days
    if (!number || !(*number >= 0) || *number * ns > kMostNs) return std::nullopt;
    return std::chrono::nanoseconds(std::llround(*number * ns));
  }
  return std::nullopt;
}

Done read_qp(Line& line, FaultRule& rule) {
  if (line.word() != "on") return {};
  Line ahead = line;
  ahead.take();
  if (!ahead.take_if("qp")) return {};
  line = ahead;
  return read_number(line, rule.qp);
}

Done read_number(Line& line, std::optional<std::uint64_t>& qp) {
  qp = number_of<std::uint64_t>(line.word());
  if (!qp) return line.wrong("write the number of a queue pair: 0 is the first that is made");
  line.take();
  return {};
}

}  // namespace weft::faults
