// Takes entries out of a list without memory.
#pragma once

#include <list>

namespace weft {

// Those for which `wanted` holds, in order.
template <class T, class Wanted>
[[nodiscard]] std::list<T> splice_if(std::list<T>& from, Wanted wanted) {
  std::list<T> taken;
  for (auto at = from.begin(); at != from.end();) {
    const auto entry = at++;
    if (wanted(*entry)) taken.splice(taken.end(), from, entry);
  }
  return taken;
}

}  // namespace weft
