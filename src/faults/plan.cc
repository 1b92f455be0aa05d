#include "faults/plan.h"

#include <charconv>
#include <system_error>

namespace weft::faults {
namespace {

// Takes a number off the front of `text`, which ends or goes on with a comma. False: there is none.
bool take_number(std::string_view& text, std::uint64_t& out) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  if (error != std::errc{} || (at != end && *at != ',')) return false;
  text.remove_prefix(static_cast<std::size_t>(at - text.data()));
  return true;
}

}  // namespace

std::string as_text(const Plan& plan) {
  std::string out = std::to_string(plan.nth) + "," + std::to_string(plan.per_place);
  if (!plan.process.empty()) out += "," + plan.process;
  return out;
}

std::optional<Plan> plan_of(std::string_view text) {
  Plan out;
  if (!take_number(text, out.nth)) return std::nullopt;
  if (text.empty()) return out;
  text.remove_prefix(1);
  if (!take_number(text, out.per_place)) return std::nullopt;
  if (!text.empty()) out.process = text.substr(1);
  return out;
}

std::string identity(std::string_view rank, std::string_view arguments) {
  std::string out = rank.empty() ? "" : "rank " + std::string(rank) + ": ";
  while (!arguments.empty() && arguments.back() == '\0') arguments.remove_suffix(1);
  for (const char c : arguments) out += c != '\0' ? c : ' ';
  return out;
}

bool Counter::next(std::uint64_t place) {
  if (plan_.per_place != 0 && ++places_[place] > plan_.per_place) return false;
  return ++count_ == plan_.nth && ours_;
}

}  // namespace weft::faults
