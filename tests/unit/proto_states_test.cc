// The state machine of a stream: every state with every event.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "proto/stream_machine.h"

namespace weft::proto {
namespace {

constexpr StreamState kStates[] = {StreamState::kIdle, StreamState::kRts, StreamState::kClosing,
                                   StreamState::kTerminate, StreamState::kError};
constexpr StreamEvent kEvents[] = {
    StreamEvent::kEstablished,    StreamEvent::kViolation,  StreamEvent::kTerminateReceived,
    StreamEvent::kLocalClose,     StreamEvent::kPeerClosed, StreamEvent::kPeerClosedEarly,
    StreamEvent::kUnexpectedData, StreamEvent::kLost,       StreamEvent::kTimer,
    StreamEvent::kAbort};

// A machine brought to `state` by legal events.
StreamMachine machine_in(StreamState state) {
  StreamMachine m;
  if (state != StreamState::kIdle) (void)m.on(StreamEvent::kEstablished);
  if (state == StreamState::kClosing) (void)m.on(StreamEvent::kLocalClose);
  if (state == StreamState::kTerminate) (void)m.on(StreamEvent::kViolation);
  if (state == StreamState::kError) (void)m.on(StreamEvent::kLost);
  EXPECT_EQ(m.state(), state);
  return m;
}

std::string snapshot() {
  std::ostringstream out;
  for (const StreamState state : kStates) {
    for (const StreamEvent event : kEvents) {
      StreamMachine m = machine_in(state);
      const auto next = m.on(event);
      EXPECT_EQ(next.value_or(state), m.state());
      EXPECT_TRUE(next || next.error() == Error::kBadTransition);
      if (next)
        out << describe(state) << " + " << describe(event) << " = " << describe(*next) << "\n";
    }
  }
  return out.str();
}

TEST(StreamMachine, EveryStateWithEveryEvent) {
  EXPECT_EQ(snapshot(), R"(Idle + established = Rts
Rts + violation = Terminate
Rts + Terminate received = Error
Rts + local close = Closing
Rts + peer closed = Idle
Rts + peer closed early = Error
Rts + lost = Error
Rts + abort = Error
Closing + peer closed = Idle
Closing + unexpected data = Error
Closing + lost = Error
Closing + timer = Error
Closing + abort = Error
Terminate + peer closed = Error
Terminate + lost = Error
Terminate + timer = Error
Terminate + abort = Error
)");
}

}  // namespace
}  // namespace weft::proto
