#include "proto/refusal.h"

namespace weft::proto {

namespace {

constexpr std::uint8_t kForEver = 7;

constexpr RefusingArrow kRefusing[] = {
    {RefusingState::kTaking, RefusingEvent::kNoReceive, RefusingState::kTelling},
    {RefusingState::kTelling, RefusingEvent::kTold, RefusingState::kDropping},
    {RefusingState::kDropping, RefusingEvent::kResumed, RefusingState::kTaking},
};

constexpr RefusedArrow kRefused[] = {
    {RefusedState::kSending, RefusedEvent::kRefused, RefusedState::kBackedOff},
    {RefusedState::kBackedOff, RefusedEvent::kPauseOver, RefusedState::kResuming},
    {RefusedState::kResuming, RefusedEvent::kTold, RefusedState::kSending},
};

}  // namespace

std::span<const RefusingArrow> refusing_arrows() noexcept { return kRefusing; }
std::span<const RefusedArrow> refused_arrows() noexcept { return kRefused; }

std::string_view describe(RefusingState s) noexcept {
  switch (s) {
    case RefusingState::kTaking: return "Taking";
    case RefusingState::kTelling: return "Telling";
    case RefusingState::kDropping: return "Dropping";
  }
  return "unknown state";
}

std::string_view describe(RefusingEvent e) noexcept {
  switch (e) {
    case RefusingEvent::kNoReceive: return "no receive";
    case RefusingEvent::kTold: return "peer told";
    case RefusingEvent::kResumed: return "peer resumes";
  }
  return "unknown event";
}

std::string_view describe(RefusedState s) noexcept {
  switch (s) {
    case RefusedState::kSending: return "Sending";
    case RefusedState::kBackedOff: return "BackedOff";
    case RefusedState::kResuming: return "Resuming";
  }
  return "unknown state";
}

std::string_view describe(RefusedEvent e) noexcept {
  switch (e) {
    case RefusedEvent::kRefused: return "refused";
    case RefusedEvent::kPauseOver: return "pause over";
    case RefusedEvent::kTold: return "peer told";
  }
  return "unknown event";
}

bool Refusal::try_on(RefusingEvent event) noexcept {
  return follow(refusing_arrows(), refusing_, event);
}

bool Refusal::try_on(RefusedEvent event) noexcept {
  return follow(refused_arrows(), refused_, event);
}

bool Refusal::peer_resumes() noexcept { return try_on(RefusingEvent::kResumed); }

bool Refusal::count(Msn msn) noexcept {
  if (msn != msn_) count_ = 0;
  msn_ = msn;
  return most_ == kForEver || ++count_ <= most_;
}

}  // namespace weft::proto
