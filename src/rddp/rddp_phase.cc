#include "rddp/rddp_phase.h"

namespace weft::rddp {

namespace {

using P = Phase;
using E = PhaseEvent;

constexpr PhaseArrow kArrows[] = {
    {P::kIdle, E::kBegun, P::kStarting},        {P::kIdle, E::kNoMemory, P::kFailed},
    {P::kIdle, E::kLost, P::kFailed},           {P::kIdle, E::kAborted, P::kFailed},
    {P::kStarting, E::kRequested, P::kRequest}, {P::kStarting, E::kEstablished, P::kUp},
    {P::kStarting, E::kRefused, P::kRefused},   {P::kStarting, E::kFailed, P::kFailed},
    {P::kStarting, E::kLost, P::kFailed},       {P::kStarting, E::kAborted, P::kFailed},
    {P::kRequest, E::kAnswered, P::kStarting},  {P::kRequest, E::kFailed, P::kFailed},
    {P::kRequest, E::kLost, P::kFailed},        {P::kRequest, E::kAborted, P::kFailed},
    {P::kUp, E::kNoMemory, P::kFailed},         {P::kUp, E::kEnded, P::kDown},
    {P::kRefused, E::kAborted, P::kFailed},
};

}  // namespace

std::span<const PhaseArrow> phase_arrows() noexcept { return kArrows; }

std::string_view describe(Phase phase) noexcept {
  switch (phase) {
    case P::kIdle: return "Idle";
    case P::kStarting: return "Starting";
    case P::kRequest: return "Request";
    case P::kUp: return "Up";
    case P::kDown: return "Down";
    case P::kRefused: return "Refused";
    case P::kFailed: return "Failed";
  }
  return "unknown phase";
}

std::string_view describe(PhaseEvent event) noexcept {
  switch (event) {
    case E::kBegun: return "begun";
    case E::kRequested: return "Request came";
    case E::kAnswered: return "answered";
    case E::kEstablished: return "established";
    case E::kNoMemory: return "no memory";
    case E::kRefused: return "refused";
    case E::kFailed: return "failed";
    case E::kLost: return "lost";
    case E::kAborted: return "aborted";
    case E::kEnded: return "stream ended";
  }
  return "unknown event";
}

}  // namespace weft::rddp
