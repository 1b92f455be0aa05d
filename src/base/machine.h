// A state machine that is a table: one row is one arrow of a picture in docs/states.md, which is
// generated from it.
//
// Values; one thread at a time.
#pragma once

#include <cassert>
#include <span>

namespace weft {

template <class State, class Event>
struct Arrow {
  State from;
  Event on;
  State to;
};

// Follows the arrow, if there is one. False: there is none, and nothing changes.
template <class State, class Event>
[[nodiscard]] bool follow(std::span<const Arrow<State, Event>> arrows, State& state,
                          Event event) noexcept {
  // A loop: std::find_if is unrolled, which boards have no room for, for each machine.
  for (const Arrow<State, Event>& arrow : arrows) {
    if (arrow.from != state || arrow.on != event) continue;
    state = arrow.to;
    return true;
  }
  return false;
}

// The same, for an event that this state has an arrow for.
template <class State, class Event>
void advance(std::span<const Arrow<State, Event>> arrows, State& state, Event event) noexcept {
  [[maybe_unused]] const bool there = follow(arrows, state, event);
  assert(there);
}

}  // namespace weft
