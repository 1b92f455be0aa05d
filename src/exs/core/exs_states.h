// The state of an extended socket. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::exs {

enum class State : std::uint8_t {
  kNew,
  kBound,
  kListening,
  kConnecting,
  kConnected,
  kFailed,  // broken: see Socket::error
  kClosed,
};

enum class StateEvent : std::uint8_t {
  kBound,
  kListens,
  kListenRefused,  // by the provider
  kConnects,
  kNotBegunNew,    // the provider refused to connect a socket that was not bound
  kNotBegunBound,  // the same for one that was
  kTakenListener,  // a plain socket of the application's that listens
  kTakenOrAccepted,
  kRequested,  // the passive end of a connection over RDMA
  kConnected,
  kFailed,
  kClosed,
};

using StateArrow = Arrow<State, StateEvent>;
[[nodiscard]] std::span<const StateArrow> state_arrows() noexcept;
[[nodiscard]] std::string_view describe(State state) noexcept;
[[nodiscard]] std::string_view describe(StateEvent event) noexcept;

}  // namespace weft::exs
