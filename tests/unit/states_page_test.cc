// docs/states.md, which is generated from the tables of all rooms.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <ostream>
#include <set>
#include <span>
#include <sstream>
#include <string>

#include "exs/core/exs_states.h"
#include "exs/rdma/sending_end.h"
#include "proto/ending.h"
#include "proto/refusal.h"
#include "proto/session_states.h"
#include "proto/startup_states.h"
#include "proto/stream_machine.h"
#include "rddp/rddp_phase.h"
#include "roce/greeting_states.h"
#include "rsockets/rs_farewell.h"
#include "rsockets/rsocket_states.h"
#include "sockets/granted/join_states.h"
#include "verbs/connection_phases.h"
#include "verbs/oob/wiring_phases.h"
#include "verbs/qp_moves.h"

namespace weft::proto {
namespace {

template <class A>
void check_pairs(std::span<const A> arrows) {
  std::set<std::string> pairs;
  for (const A& a : arrows) {
    const std::string pair = std::string(describe(a.from)) + " + " + std::string(describe(a.on));
    EXPECT_TRUE(pairs.insert(pair).second) << pair << " is there twice";
    EXPECT_EQ(pair.find("unknown"), std::string::npos) << pair;
  }
}

// Each state can be reached from the first.
template <class A>
void check_reach(std::span<const A> arrows) {
  std::set<std::string> reached{std::string(describe(arrows.front().from))};
  for (std::size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const A& a : arrows) {
      if (reached.contains(std::string(describe(a.from)))) reached.emplace(describe(a.to));
    }
  }
  for (const A& a : arrows) {
    EXPECT_TRUE(reached.contains(std::string(describe(a.from)))) << describe(a.from);
  }
}

// The arrows as a table and as a picture.
template <class A>
void draw_part(std::ostream& out, std::span<const A> arrows) {
  check_pairs(arrows);
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

// A table that has all moves of its states.
template <class A>
void draw(std::ostream& out, std::span<const A> arrows) {
  check_reach(arrows);
  draw_part(out, arrows);
}

// The words of the lists of states are the enums'.
void draw_streams(std::ostream& out) {
  out << R"(
## The stream

`src/proto/stream_machine.cc`

| state | meaning |
|---|---|
| Idle | not started, or over in good order |
| Rts | full operation ("ready to send", as verbs call it) |
| Closing | we closed, in good order or after a fault of our own that the peer is not told: our FIN is on its way, the peer's is awaited |
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

`src/proto/refusal.cc`. The peer resumes when it has sent the refused requests again.

| state | meaning |
|---|---|
| Sending | work is sent |
| BackedOff | answers and Acks are sent, for as long as the peer has asked |
| Resuming | the peer has still to be told that all comes again |
)";
  draw(out, refused_arrows());
}

void draw_beginnings(std::ostream& out) {
  out << R"(
## How a connection begins

`src/proto/session_states.cc`: what both ends agree on, without a socket.

| state | meaning |
|---|---|
| New | nothing has been sent |
| Frames | Request or Reply are under way; responder: nobody has been asked yet |
| Requested | responder: the program has to accept or decline |
| Replying | responder: accepted, the Reply is being sent |
| Refusing | responder: the last octets are being sent, then it is over |
| Agreed | the stream is being made |
| FirstFpdu | responder, peer-to-peer: the stream runs, its first FPDU is awaited |
| Unusable | initiator: the stream runs for its Terminate alone |
| Up | full operation |
| Over | over |
)";
  draw(out, session_arrows());
  out << R"(
## The frames of a start-up

`src/proto/startup_states.cc`: MPA Request and Reply, in either role.

| state | meaning |
|---|---|
| AwaitingRequest | responder, or nothing is known yet |
| SendingRequest | initiator |
| AwaitingReply | initiator |
| RequestReady | responder: the program decides |
| SendingReply | responder: accepted |
| SendingReject | responder: declined |
| SendingRevision | responder: the answer to revision 0, then it is over |
| Done | full operation begins |
| Rejected | one of the programs said no |
| Failed | closed without a Terminate: the peer may not speak MPA at all |
)";
  draw(out, startup_arrows());
}

void draw_connections(std::ostream& out) {
  out << R"(
## A connection of verbs

`src/verbs/connection_phases.cc`: the socket, and the queue pair that gets it.

| phase | meaning |
|---|---|
| Idle | may be bound |
| Asking | for the TCP port that serves a port of rdma_cm |
| Connecting | TCP handshake |
| Refused | waits to try the TCP handshake again |
| Starting | the frames of the section above |
| Attaching | the queue pair is being given the socket |
| Up | the queue pair has it |
| Carrying | it only carries the numbers of queue pairs, see [personality.md](personality.md) |
| Down | over; ending it once more changes nothing |
)";
  draw(out, verbs::connection_arrows());
}

void draw_wiring(std::ostream& out) {
  out << R"(
## A queue pair that is wired by hand

`src/verbs/oob/wiring_phases.cc`; see [personality.md](personality.md).

| phase | meaning |
|---|---|
| Unwired | RESET, INIT, ERROR |
| Seeking | no connection: trying, waiting to be found, or doing nothing until there is work |
| Linking | the queue pair is being given the socket |
| Linked | the queue pair has it |
)";
  draw(out, verbs::wiring_arrows());
  out << R"(
## The hellos of queue pairs that are wired by hand

`src/roce/greeting_states.cc`. With a secret there are a challenge and a proof.

| state | meaning |
|---|---|
| AwaitingRequest | listener, or nothing is known yet |
| SendingRequest | connector |
| AwaitingReply | connector: the answer, or a challenge before it |
| SendingProof | connector |
| AwaitingAnswer | connector, behind the proof |
| SendingChallenge | listener |
| AwaitingProof | listener |
| Asked | listener: the queue pair it is for has to answer |
| SendingAnswer | listener |
| Accepted | the next octet belongs to the stream |
| Declined | the peer said no, or we did |
| Failed | the hellos break the rules, or the connection is lost |
)";
  draw(out, roce::greeting_arrows());
}

void draw_queue_pairs(std::ostream& out) {
  out << R"(
## A queue pair, as its program moves it

`src/verbs/qp_moves.cc`. The event is the state that was asked for. A connection moves the queue
pair to RTR and RTS; before it may be in RESET again, the connection has to be over.
)";
  draw_part(out, verbs::connected_moves());
  out << R"(
## A queue pair that is wired by hand, as its program moves it

The moves from INIT to RTR and from RTR to RTS bring the peer's address with them: they are
`QueuePair::wire()` and `QueuePair::start_sending()`.
)";
  draw_part(out, verbs::wired_moves());
  out << R"(
## A queue pair of datagrams, as its program moves it

A Send that fails leads to SQE.
)";
  draw_part(out, verbs::datagram_moves());
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
## An rsocket

`src/rsockets/rsocket_states.cc`.

| state | meaning |
|---|---|
| Open | neither connected nor listening |
| Listening | takes connections |
| Connecting | the connection is being set up, or a peer's is being answered |
| Connected | bytes may be sent |
| Failed | broken, or closed |
)";
  draw(out, rsockets::rsocket_arrows());
  out << R"(
## The end of an rsocket's stream

`src/rsockets/rs_farewell.cc`: what the peer is told of it. Each message waits for a control slot.

| state | meaning |
|---|---|
| Open | octets are sent |
| ShutdownDue | the peer is told of the shutdown as soon as there is a slot |
| ShutdownSaid | the peer knows that no octets follow |
| DisconnectDue | the peer is told of the disconnect as soon as there is a slot |
| DisconnectSaid | the peer knows that we leave |
)";
  draw(out, rsockets::farewell_arrows());
  out << R"(
## One direction of a TCP connection with a ring beside it

`src/sockets/granted/join_states.cc`.

| state | meaning |
|---|---|
| Apart | calls go to the kernel |
| Counted | calls go by the ring's rules, and what TCP carries is counted |
| Joined | in: windows may be opened; out: calls may begin to use the ring |
)";
  draw(out, sockets::granted::join_arrows());
}

void draw_extended(std::ostream& out) {
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
  out << R"(
## The sending side of an extended socket over RDMA

`src/exs/rdma/sending_end.cc`. Its messages: [exs-protocol.md](exs-protocol.md).

| state | meaning |
|---|---|
| Open | sends are taken |
| Stopping | no more sends will be posted, those there are still go |
| Told | the peer is told that no data follows |
| Acknowledged | the peer has everything |
| Disconnecting | both sides have finished, and the connection is being ended |
)";
  draw(out, exs::sending_arrows());
}

// The page as the tables say it.
std::string page() {
  std::ostringstream out;
  out << R"(# State machines

Generated from the tables of the sources: `WEFT_UPDATE=1 build/release/tests-bin/states_test` writes
it anew. A pair that is not listed changes nothing. Some are offered on purpose, as the end of what
has ended; those that nothing may offer are asserted. The first state of each table is where it
begins. The states of a lane, and who may run it, are in [threads.md](threads.md).
)";
  draw_streams(out);
  draw_beginnings(out);
  draw_connections(out);
  draw_wiring(out);
  draw_queue_pairs(out);
  draw_others(out);
  draw_extended(out);
  return out.str();
}

TEST(StatesPage, IsAsTheTablesSay) {
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
