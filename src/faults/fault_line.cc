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

Done read_share(Line& line, double& percent) {
  const std::string_view text = line.word();
  const auto share = text.ends_with('%') ? number_of<double>(text.substr(0, text.size() - 1))
                                         : std::optional<double>();
  if (!share || !(*share > 0) || *share > 100) return line.wrong("write a share as 5%, to 100%");
  percent = *share;
  line.take();
  return {};
}

Done read_qp(Line& line, FaultRule& rule) {
  if (line.word() != "on") return {};
  Line ahead = line;
  ahead.take();
  if (!ahead.take_if("qp")) return {};
  line = ahead;
  return read_number(line, rule.qp.emplace(), rule.peer);
}

Done read_number(Line& line, std::uint64_t& qp, std::string& peer) {
  std::string_view word = line.word();
  std::string_view host;
  const std::size_t colon = word.rfind(':');
  if (colon != std::string_view::npos) {
    host = word.substr(0, colon);
    word.remove_prefix(colon + 1);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  }
  const auto number = number_of<std::uint64_t>(word);
  if (!number || (colon != std::string_view::npos && host.empty())) {
    return line.wrong(
        "write the number of a queue pair: 0 is the first that is made; or HOST:NUMBER, as h1:0, "
        "the first that is connected to h1");
  }
  qp = *number;
  peer = host;
  line.take();
  return {};
}

}  // namespace weft::faults
