#include "exs/core/exs_states.h"

namespace weft::exs {

namespace {

using S = State;
using E = StateEvent;

constexpr StateArrow kArrows[] = {
    {S::kNew, E::kBound, S::kBound},
    {S::kNew, E::kConnects, S::kConnecting},
    {S::kNew, E::kTakenListener, S::kListening},
    {S::kNew, E::kTakenOrAccepted, S::kConnected},
    {S::kNew, E::kRequested, S::kConnecting},
    {S::kNew, E::kFailed, S::kFailed},
    {S::kNew, E::kClosed, S::kClosed},
    {S::kBound, E::kListens, S::kListening},
    {S::kBound, E::kConnects, S::kConnecting},
    {S::kBound, E::kFailed, S::kFailed},
    {S::kBound, E::kClosed, S::kClosed},
    {S::kListening, E::kListenRefused, S::kBound},
    {S::kListening, E::kFailed, S::kFailed},
    {S::kListening, E::kClosed, S::kClosed},
    {S::kConnecting, E::kNotBegunNew, S::kNew},
    {S::kConnecting, E::kNotBegunBound, S::kBound},
    {S::kConnecting, E::kConnected, S::kConnected},
    {S::kConnecting, E::kFailed, S::kFailed},
    {S::kConnecting, E::kClosed, S::kClosed},
    {S::kConnected, E::kFailed, S::kFailed},
    {S::kConnected, E::kClosed, S::kClosed},
    {S::kFailed, E::kClosed, S::kClosed},
};

}  // namespace

std::span<const StateArrow> state_arrows() noexcept { return kArrows; }

std::string_view describe(State state) noexcept {
  switch (state) {
    case S::kNew: return "New";
    case S::kBound: return "Bound";
    case S::kListening: return "Listening";
    case S::kConnecting: return "Connecting";
    case S::kConnected: return "Connected";
    case S::kFailed: return "Failed";
    case S::kClosed: return "Closed";
  }
  return "unknown state";
}

std::string_view describe(StateEvent event) noexcept {
  switch (event) {
    case E::kBound: return "bound";
    case E::kListens: return "listens";
    case E::kListenRefused: return "listening refused";
    case E::kConnects: return "connects";
    case E::kNotBegunNew: return "not begun, unbound";
    case E::kNotBegunBound: return "not begun, bound";
    case E::kTakenListener: return "plain listener taken in";
    case E::kTakenOrAccepted: return "taken in or accepted";
    case E::kRequested: return "requested by a peer";
    case E::kConnected: return "connected";
    case E::kFailed: return "failed";
    case E::kClosed: return "closed";
  }
  return "unknown event";
}

}  // namespace weft::exs
