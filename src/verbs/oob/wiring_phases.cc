#include "verbs/oob/wiring_phases.h"

namespace weft::verbs {

namespace {

using P = WiringPhase;
using S = WiringStep;

constexpr WiringArrow kArrows[] = {
    {P::kUnwired, S::kSought, P::kSeeking},  {P::kUnwired, S::kStopped, P::kUnwired},
    {P::kSeeking, S::kSought, P::kSeeking},  {P::kSeeking, S::kFound, P::kLinking},
    {P::kSeeking, S::kLost, P::kSeeking},    {P::kSeeking, S::kStopped, P::kUnwired},
    {P::kLinking, S::kSought, P::kSeeking},  {P::kLinking, S::kFound, P::kLinking},
    {P::kLinking, S::kLinked, P::kLinked},   {P::kLinking, S::kLost, P::kSeeking},
    {P::kLinking, S::kStopped, P::kUnwired}, {P::kLinked, S::kLost, P::kSeeking},
    {P::kLinked, S::kStopped, P::kUnwired},
};

}  // namespace

std::span<const WiringArrow> wiring_arrows() noexcept { return kArrows; }

std::string_view describe(WiringPhase phase) noexcept {
  switch (phase) {
    case WiringPhase::kUnwired: return "Unwired";
    case WiringPhase::kSeeking: return "Seeking";
    case WiringPhase::kLinking: return "Linking";
    case WiringPhase::kLinked: return "Linked";
  }
  return "unknown phase";
}

std::string_view describe(WiringStep step) noexcept {
  switch (step) {
    case WiringStep::kSought: return "sought";
    case WiringStep::kFound: return "found";
    case WiringStep::kLinked: return "linked";
    case WiringStep::kLost: return "lost";
    case WiringStep::kStopped: return "stopped";
  }
  return "unknown step";
}

}  // namespace weft::verbs
