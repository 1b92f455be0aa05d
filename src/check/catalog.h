// The rules of `weft run --check` in words: `weft check explain` prints them and docs/check.md has
// the same text.
#pragma once

#include <span>
#include <string_view>

namespace weft::check {

struct RuleText {
  std::string_view id;
  std::string_view title;
  std::string_view seen;    // what the program did
  std::string_view breaks;  // why that fails on adapters
  std::string_view repair;  // what to do
};

[[nodiscard]] std::span<const RuleText> all_rules();
// Null: there is no such rule.
[[nodiscard]] const RuleText* find_rule(std::string_view id);

}  // namespace weft::check
