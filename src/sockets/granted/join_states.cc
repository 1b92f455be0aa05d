#include "sockets/granted/join_states.h"

namespace weft::sockets::granted {

namespace {

constexpr JoinArrow kJoin[] = {
    {JoinState::kApart, JoinEvent::kCounts, JoinState::kCounted},
    {JoinState::kCounted, JoinEvent::kMiscounted, JoinState::kApart},
    {JoinState::kCounted, JoinEvent::kAgreed, JoinState::kJoined},
    {JoinState::kCounted, JoinEvent::kLeftAlone, JoinState::kApart},
    {JoinState::kJoined, JoinEvent::kForbidden, JoinState::kCounted},
    {JoinState::kJoined, JoinEvent::kLeftAlone, JoinState::kApart},
};

}  // namespace

std::span<const JoinArrow> join_arrows() noexcept { return kJoin; }

std::string_view describe(JoinState state) noexcept {
  switch (state) {
    case JoinState::kApart: return "Apart";
    case JoinState::kCounted: return "Counted";
    case JoinState::kJoined: return "Joined";
  }
  return "unknown state";
}

std::string_view describe(JoinEvent event) noexcept {
  switch (event) {
    case JoinEvent::kCounts: return "counts";
    case JoinEvent::kMiscounted: return "miscounted";
    case JoinEvent::kAgreed: return "agreed";
    case JoinEvent::kForbidden: return "forbidden";
    case JoinEvent::kLeftAlone: return "left alone";
  }
  return "unknown event";
}

bool Direction::on(JoinEvent event) {
  JoinState before = state_.load();
  for (;;) {
    JoinState next = before;
    if (!follow(join_arrows(), next, event)) return false;
    if (state_.compare_exchange_weak(before, next)) return true;
  }
}

}  // namespace weft::sockets::granted
