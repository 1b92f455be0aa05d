#include "proto/stream_machine.h"

#include <algorithm>

namespace weft::proto {

namespace {

using S = StreamState;
using E = StreamEvent;

// One row is one arrow of docs/states.md, which is generated from this table.
// A pair that is not listed is illegal and changes nothing.
constexpr StreamArrow kArrows[] = {
    {S::kIdle, E::kEstablished, S::kRts},

    {S::kRts, E::kViolation, S::kTerminate},
    {S::kRts, E::kTerminateReceived, S::kError},
    {S::kRts, E::kLocalClose, S::kClosing},
    {S::kRts, E::kPeerClosed, S::kIdle},
    {S::kRts, E::kPeerClosedEarly, S::kError},
    {S::kRts, E::kLost, S::kError},
    {S::kRts, E::kAbort, S::kError},

    // Our FIN is on its way: no Terminate can follow it, so new data ends in a reset, good or bad.
    {S::kClosing, E::kPeerClosed, S::kIdle},
    {S::kClosing, E::kUnexpectedData, S::kError},
    {S::kClosing, E::kLost, S::kError},
    {S::kClosing, E::kTimer, S::kError},
    {S::kClosing, E::kAbort, S::kError},

    // Arriving octets are dropped unread until the peer closes, so that our Terminate is not lost.
    {S::kTerminate, E::kPeerClosed, S::kError},
    {S::kTerminate, E::kLost, S::kError},
    {S::kTerminate, E::kTimer, S::kError},
    {S::kTerminate, E::kAbort, S::kError},
};

}  // namespace

std::span<const StreamArrow> stream_arrows() noexcept { return kArrows; }

std::string_view describe(StreamState s) noexcept {
  switch (s) {
    case S::kIdle: return "Idle";
    case S::kRts: return "Rts";
    case S::kClosing: return "Closing";
    case S::kTerminate: return "Terminate";
    case S::kError: return "Error";
  }
  return "unknown state";
}

std::string_view describe(StreamEvent e) noexcept {
  switch (e) {
    case E::kEstablished: return "established";
    case E::kViolation: return "violation";
    case E::kTerminateReceived: return "Terminate received";
    case E::kLocalClose: return "local close";
    case E::kPeerClosed: return "peer closed";
    case E::kPeerClosedEarly: return "peer closed early";
    case E::kUnexpectedData: return "unexpected data";
    case E::kLost: return "lost";
    case E::kTimer: return "timer";
    case E::kAbort: return "abort";
  }
  return "unknown event";
}

Result<StreamState> StreamMachine::on(StreamEvent event) noexcept {
  const auto* arrow = std::ranges::find_if(
      kArrows, [&](const StreamArrow& a) { return a.from == state_ && a.on == event; });
  if (arrow == std::ranges::end(kArrows)) return fail(Error::kBadTransition);
  return state_ = arrow->to;
}

}  // namespace weft::proto
