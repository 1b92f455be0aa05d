#include "shake/shake_plan.h"

#include <array>
#include <charconv>

#include "base/mixed_bits.h"

namespace weft::shake {
namespace {

constexpr std::array kEffects = {Effect::kArm,       Effect::kLate,  Effect::kPlacement,
                                 Effect::kUndefined, Effect::kErrno, Effect::kSizes,
                                 Effect::kOrder};

std::uint32_t bit(Effect effect) { return 1U << static_cast<unsigned>(effect); }

std::uint32_t all_effects() {
  std::uint32_t out = 0;
  for (const Effect effect : kEffects) out |= bit(effect);
  return out;
}

template <class Number>
bool read(std::string_view text, Number& out) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  return error == std::errc{} && stop == end;
}

}  // namespace

std::optional<Plan> parse_plan(std::string_view text, std::string& why) {
  Plan plan;
  const std::size_t colon = text.find(':');
  if (!read(text.substr(0, colon), plan.seed)) {
    why = "'" + std::string(text.substr(0, colon)) + "' is not a seed; write a number from 0 on";
    return std::nullopt;
  }
  if (colon == std::string_view::npos) {
    plan.effects = all_effects();
    return plan;
  }
  for (std::string_view rest = text.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    unsigned number = 0;
    const bool good =
        read(rest.substr(0, comma), number) && number < 32 && (all_effects() >> number & 1U) != 0;
    if (!good) {
      why = "'" + std::string(rest.substr(0, comma)) + "' is not an effect; there are";
      for (const Effect effect : kEffects) why += " " + std::to_string(static_cast<int>(effect));
      return std::nullopt;
    }
    plan.effects |= 1U << number;
    if (comma == std::string_view::npos) return plan;
    rest.remove_prefix(comma + 1);
  }
}

Dice::Dice(std::uint64_t seed, std::uint64_t stream)
    : state_(mixed_bits(mixed_bits(seed + kMixStep) + stream)) {}

Dice::Dice(std::uint64_t seed, std::uint64_t stream, Decision about, std::uint64_t queue,
           std::uint64_t number)
    : Dice(seed, stream) {
  state_ = mixed_bits(state_ + static_cast<std::uint64_t>(about));
  state_ = mixed_bits(state_ + queue);
  state_ = mixed_bits(state_ + number);
}

std::uint64_t Dice::next() { return next_mixed(state_); }

}  // namespace weft::shake
