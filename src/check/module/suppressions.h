// The findings that `weft run --check --suppress FILE` leaves out.
#pragma once

#include <string>
#include <vector>

#include "check/module/output.h"

namespace weft::check {

// Patterns of the shell: for a rule, and for a function of the program.
struct Suppression {
  std::string rule;
  std::string function;
};

// One that cannot be read has none.
[[nodiscard]] std::vector<Suppression> read_suppressions(const std::string& file);
[[nodiscard]] bool is_suppressed(const std::vector<Suppression>& suppressions,
                                 const Placed& placed);

}  // namespace weft::check
