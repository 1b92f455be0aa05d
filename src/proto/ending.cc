#include "proto/ending.h"

#include <utility>

namespace weft::proto {

namespace {

constexpr HalfArrow kHalf[] = {
    {HalfState::kOpen, HalfEvent::kStopped, HalfState::kFinishing},
    {HalfState::kOpen, HalfEvent::kLost, HalfState::kLost},
    {HalfState::kFinishing, HalfEvent::kFinTaken, HalfState::kClosed},
    {HalfState::kFinishing, HalfEvent::kLost, HalfState::kLost},
    {HalfState::kClosed, HalfEvent::kLost, HalfState::kLost},
};

}  // namespace

std::span<const HalfArrow> half_arrows() noexcept { return kHalf; }

std::string_view describe(HalfState s) noexcept {
  switch (s) {
    case HalfState::kOpen: return "Open";
    case HalfState::kFinishing: return "Finishing";
    case HalfState::kClosed: return "Closed";
    case HalfState::kLost: return "Lost";
  }
  return "unknown state";
}

std::string_view describe(HalfEvent e) noexcept {
  switch (e) {
    case HalfEvent::kStopped: return "stopped";
    case HalfEvent::kFinTaken: return "FIN taken";
    case HalfEvent::kLost: return "lost";
  }
  return "unknown event";
}

bool Ending::on(HalfEvent event) noexcept { return follow(half_arrows(), half_, event); }

bool Ending::peer_closes() noexcept { return !std::exchange(peer_fin_, true); }

bool Ending::begin(StreamEnd how, TerminateCode code, bool by_peer, Offender offender) noexcept {
  if (is_told_or_due()) return false;
  end_ = how;
  due_ = true;
  code_ = code;
  by_peer_ = by_peer;
  offender_ = offender;
  return true;
}

}  // namespace weft::proto
