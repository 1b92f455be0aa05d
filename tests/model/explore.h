// Explicit-state search for models of what several threads or processes do in any order.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

namespace weft::test {

// Finds every state that some order of steps leads to, from `first` on, and returns how many there
// are.
//   next(state, out)    appends to `out` what each single step from `state` leads to
//   visit(state, end)   called once for each; `end`: no step is possible there
// `State` has an order and all that the steps depend on.
template <class State, class Next, class Visit>
std::size_t explore(const State& first, const Next& next, const Visit& visit) {
  std::set<State> known{first};
  std::vector<State> open{first};
  std::vector<State> following;
  while (!open.empty()) {
    const State state = open.back();
    open.pop_back();
    following.clear();
    next(state, following);
    visit(state, following.empty());
    for (const State& s : following) {
      if (known.insert(s).second) open.push_back(s);
    }
  }
  return known.size();
}

}  // namespace weft::test
