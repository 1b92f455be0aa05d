// State machines: every state of a stream with every event, and the generated page about all.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <ostream>
#include <span>
#include <sstream>
#include <string>

#include "exs/core/exs_states.h"
#include "proto/ending.h"
#include "proto/refusal.h"
#include "proto/stream_machine.h"
#include "rddp/rddp_phase.h"

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

// The arrows as a table and as a picture.
template <class A>
void draw(std::ostream& out, std::span<const A> arrows) {
  out << "\n| state | event | next |\n|---|---|---|\n";
  for (const A& a : arrows) {
    out << "| " << describe(a.from) << " | " << describe(a.on) << " | " << describe(a.to) << " |\n";
  }
  out << "\n```mermaid\nstateDiagram-v2\n  [*] --> " << describe(arrows.front().from) << "\n";
  for (const A& a : arrows) {
    out << "  " << describe(a.from) << " --> " << describe(a.to) << ": " << describe(a.on) << "\n";
  }
  out << "```\n";
}

// The words of the lists of states are the enums'.
void draw_streams(std::ostream& out) {
  out << R"(
## The stream

`src/proto/stream_machine.cc`

| state | meaning |
|---|---|
| Idle | not started, or over in good order |
| Rts | full operation |
| Closing | we closed in good order: our FIN is on its way, the peer's is awaited |
| Terminate | our Terminate is on its way: what arrives is read and dropped until the peer closes |
| Error | over |
)";
  draw(out, stream_arrows());
  out << R"(
## Our half of the connection

`src/proto/ending.cc`. The stream is over for its transport when this half is closed, the peer's
FIN has come and nothing is in flight; or when it is lost.

| state | meaning |
|---|---|
| Open | work is sent |
| Finishing | what is begun goes out, then at most a Terminate, then FIN |
| Closed | FIN is the transport's business |
| Lost | nothing more can be sent or received |
)";
  draw(out, half_arrows());
  out << R"(
## A Send without a receive, where it arrives

`src/proto/refusal.cc`; between wired queue pairs, see `src/proto/stream_not_ready.cc`.

| state | meaning |
|---|---|
| Taking | requests are carried out |
| Telling | requests are dropped, and the peer has still to be told |
| Dropping | requests are dropped until the peer resumes |
)";
  draw(out, refusing_arrows());
  out << R"(
## A Send without a receive, where it came from

| state | meaning |
|---|---|
| Sending | work is sent |
| BackedOff | answers and Acks are sent, for as long as the peer has asked |
| Resuming | the peer has still to be told that all comes again |
)";
  draw(out, refused_arrows());
}

void draw_others(std::ostream& out) {
  out << R"(
## A connection without an operating system

`src/rddp/rddp_phase.cc`.

| state | meaning |
|---|---|
| Idle | no transport yet |
| Starting | frames are being exchanged |
| Request | the responder's program has to accept or reject |
| Up | full operation |
| Down | was up; all work has completed |
| Refused | the peer's program said no, or ours did |
| Failed | start-up failed |
)";
  draw(out, rddp::phase_arrows());
  out << R"(
## An extended socket

`src/exs/core/exs_states.cc`.

| state | meaning |
|---|---|
| New | has no address |
| Bound | has an address |
| Listening | takes connections |
| Connecting | the connection is being set up |
| Connected | messages or bytes may be sent |
| Failed | broken; `exs_close` still has to be called |
| Closed | its number is another's |
)";
  draw(out, exs::state_arrows());
}

// The page as the tables say it.
std::string page() {
  std::ostringstream out;
  out << R"(# State machines

Generated from the tables of the sources by `proto_test`; run that with `WEFT_UPDATE=1` to write
this page anew. A pair that is not listed is illegal and changes nothing. The first state of each
table is where it begins.
)";
  draw_streams(out);
  draw_others(out);
  return out.str();
}

TEST(StreamMachine, TheGeneratedPageIsUpToDate) {
  const std::string path = WEFT_SOURCE_DIR "/docs/states.md";
  if (std::getenv("WEFT_UPDATE") != nullptr) {
    std::ofstream(path) << page();
  }
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  std::ostringstream have;
  have << in.rdbuf();
  EXPECT_EQ(have.str(), page()) << "run this test with WEFT_UPDATE=1 and commit docs/states.md";
}

}  // namespace
}  // namespace weft::proto
