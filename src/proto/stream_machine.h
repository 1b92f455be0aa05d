// States of a stream, RFC 5040 6.1: the arrows are data.
//
// A pair that is not listed is illegal and changes nothing. Values; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"
#include "base/result.h"

namespace weft::proto {

enum class StreamState : std::uint8_t {
  kIdle,       // not started, or over in good order
  kRts,        // full operation
  kClosing,    // we closed in good order: our FIN is on its way, the peer's is awaited
  kTerminate,  // our Terminate is on its way: read and drop until the peer closes
  kError,      // over
};

enum class StreamEvent : std::uint8_t {
  kEstablished,
  kViolation,  // the peer, or we, broke a rule: a Terminate goes out
  kTerminateReceived,
  kLocalClose,
  kPeerClosed,       // FIN on a message border, nothing outstanding
  kPeerClosedEarly,  // FIN anywhere else
  kUnexpectedData,   // a new message after our FIN
  kLost,             // reset, time-out
  kTimer,
  kAbort,
};

using StreamArrow = Arrow<StreamState, StreamEvent>;
[[nodiscard]] std::span<const StreamArrow> stream_arrows() noexcept;
[[nodiscard]] std::string_view describe(StreamState s) noexcept;
[[nodiscard]] std::string_view describe(StreamEvent e) noexcept;

class StreamMachine {
 public:
  // The only function that changes the state.   kBadTransition: no such arrow; nothing changed
  Result<StreamState> on(StreamEvent event) noexcept;
  [[nodiscard]] StreamState state() const noexcept { return state_; }

 private:
  StreamState state_ = StreamState::kIdle;
};

}  // namespace weft::proto
