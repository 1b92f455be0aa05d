// Runs checks against a peer and reports.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {

struct Outcome {
  const Check* check = nullptr;
  Verdict verdict{};
  double seconds = 0;
};

struct Selection {
  std::vector<std::string> only{};  // ids, or their beginning; none: all
  bool gentle = false;
};
[[nodiscard]] bool selects(const Selection& selection, const Check& check);

// Finds a start-up that the peer accepts, and what its application is. A sentence about why not, if
// there is none.
[[nodiscard]] std::optional<std::string> meet(Context& context);

// One check after the other; `watch` sees each outcome as it comes. While they run a connection of
// its own is kept: a check that costs it is wrong, whatever it found.
[[nodiscard]] std::vector<Outcome> run_checks(Context& context, const Checks& checks,
                                              const Selection& selection,
                                              const std::function<void(const Outcome&)>& watch);

// For people: one line per check, then a summary.
[[nodiscard]] std::string headline(const Context& context);
[[nodiscard]] std::string line(const Outcome& outcome);
[[nodiscard]] std::string summary(const std::vector<Outcome>& outcomes);
// For programs.
[[nodiscard]] std::string json(const Context& context, const std::vector<Outcome>& outcomes);
[[nodiscard]] bool all_well(const std::vector<Outcome>& outcomes);

}  // namespace weft::selftest
