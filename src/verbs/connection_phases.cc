#include "verbs/connection_phases.h"

namespace weft::verbs {

namespace {

using P = ConnectionPhase;
using S = ConnectionStep;

constexpr ConnectionArrow kArrows[] = {
    {P::kIdle, S::kConnect, P::kConnecting},
    {P::kIdle, S::kAccepted, P::kStarting},
    {P::kIdle, S::kEnded, P::kDown},
    {P::kConnecting, S::kHandshake, P::kConnecting},
    {P::kConnecting, S::kAsks, P::kAsking},
    {P::kConnecting, S::kRefused, P::kRefused},
    {P::kConnecting, S::kConnected, P::kStarting},
    {P::kConnecting, S::kEnded, P::kDown},
    {P::kAsking, S::kHandshake, P::kConnecting},
    {P::kAsking, S::kRefused, P::kRefused},
    {P::kAsking, S::kEnded, P::kDown},
    {P::kRefused, S::kAsks, P::kAsking},
    {P::kRefused, S::kHandshake, P::kConnecting},
    {P::kRefused, S::kEnded, P::kDown},
    {P::kStarting, S::kAgreed, P::kAttaching},
    {P::kStarting, S::kCarries, P::kCarrying},
    {P::kStarting, S::kEnded, P::kDown},
    {P::kAttaching, S::kAttached, P::kUp},
    {P::kAttaching, S::kEnded, P::kDown},
    {P::kCarrying, S::kEnded, P::kDown},
    {P::kUp, S::kEnded, P::kDown},
    {P::kDown, S::kEnded, P::kDown},
};

}  // namespace

std::span<const ConnectionArrow> connection_arrows() noexcept { return kArrows; }

void PhaseOfConnection::on(ConnectionStep step) noexcept {
  advance(connection_arrows(), now_, step);
}

std::string_view describe(ConnectionPhase phase) noexcept {
  switch (phase) {
    case ConnectionPhase::kIdle: return "Idle";
    case ConnectionPhase::kAsking: return "Asking";
    case ConnectionPhase::kConnecting: return "Connecting";
    case ConnectionPhase::kRefused: return "Refused";
    case ConnectionPhase::kStarting: return "Starting";
    case ConnectionPhase::kAttaching: return "Attaching";
    case ConnectionPhase::kUp: return "Up";
    case ConnectionPhase::kCarrying: return "Carrying";
    case ConnectionPhase::kDown: return "Down";
  }
  return "unknown phase";
}

std::string_view describe(ConnectionStep step) noexcept {
  switch (step) {
    case ConnectionStep::kConnect: return "connect";
    case ConnectionStep::kAccepted: return "accepted";
    case ConnectionStep::kAsks: return "asks for the port";
    case ConnectionStep::kHandshake: return "handshake begins";
    case ConnectionStep::kRefused: return "refused";
    case ConnectionStep::kConnected: return "connected";
    case ConnectionStep::kAgreed: return "agreed";
    case ConnectionStep::kCarries: return "agreed, carries";
    case ConnectionStep::kAttached: return "attached";
    case ConnectionStep::kEnded: return "ended";
  }
  return "unknown step";
}

}  // namespace weft::verbs
