// The texts of the rules, for `weft check`.
#include <cstddef>

#include "check/catalog.h"

// For `weft check explain`: id, title, what was seen, why it matters, what to do. False: there are
// no more.
extern "C" __attribute__((visibility("default"))) bool weft_check_rule(std::size_t index,
                                                                       const char* out[5]) {
  const auto rules = weft::check::all_rules();
  if (index >= rules.size()) return false;
  const weft::check::RuleText& rule = rules[index];
  out[0] = rule.id.data();  // of literals: they end with a null
  out[1] = rule.title.data();
  out[2] = rule.seen.data();
  out[3] = rule.breaks.data();
  out[4] = rule.repair.data();
  return true;
}
