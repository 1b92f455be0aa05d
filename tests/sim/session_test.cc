// A connection from its first octet: start-up in both roles, each time limit, each way to fail, the
// hand-over to the stream.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "seeds.h"
#include "session_pair.h"

namespace weft::testing {
namespace {

using namespace std::chrono_literals;
using proto::SessionFault;
using proto::StartupFailure;
using Octets = std::vector<std::uint8_t>;

void begin(SessionPair& net) {
  net.server.await_request();
  ASSERT_TRUE(net.client.start().has_value());
}

// A whole Request or Reply, as a peer of ours would send it.
Octets request(const proto::StartupOffer& offer = {}) {
  const auto startup = proto::Startup::initiator(offer);
  const auto frame = startup->to_send();
  return {frame.begin(), frame.end()};
}
Octets reply(const proto::StartupOffer& offer = {}) {
  proto::Startup startup = proto::Startup::responder();
  EXPECT_TRUE(startup.received(request(offer)).has_value());
  EXPECT_TRUE(startup.accept(offer).has_value());
  const auto frame = startup.to_send();
  return {frame.begin(), frame.end()};
}

// All of them, though a session asks for so many and no more.
void feed(SessionSide& side, const Octets& octets) { side.arrived(octets); }

void ping(SessionPair& net) {
  std::uint8_t* from = net.client.endpoint.take(100);
  std::uint8_t* to = net.server.endpoint.take(100);
  net.server.endpoint.post_recv(7, to, 100);
  net.client.endpoint.post_send(SendOp::kSend, SendFlags::kSignaled, 8, from, 100);
  net.run();
  ASSERT_EQ(net.server.endpoint.recvs.size(), 1U);
  ASSERT_EQ(net.client.endpoint.sends.size(), 1U);
  EXPECT_EQ(net.client.endpoint.sends[0].status, WcStatus::kSuccess);
}

TEST(Session, IsEstablishedCarriesPrivateDataAndEndsInOrderHoweverOctetsCome) {
  for_each_seed(200, [&](std::uint64_t seed) {
    Rng rng(seed);
    SessionPair net(seed);
    net.chunk_max = rng.one_in(2) ? rng.size(1, 40) : 4096;
    net.client.offer.peer_to_peer = rng.one_in(2);
    net.client.offer.markers = rng.one_in(2);
    net.server.offer.crc = rng.one_in(2);
    net.client.private_data = std::string(rng.size(0, 508), 'c');
    net.server.private_data = std::string(rng.size(0, 508), 's');
    begin(net);
    net.run();
    const bool p2p = net.client.offer.peer_to_peer;
    EXPECT_EQ(net.client.story(), "starting established");
    EXPECT_EQ(net.server.story(), "request starting established");
    EXPECT_EQ(net.client.peer_data, net.server.private_data);
    EXPECT_EQ(net.server.peer_data, net.client.private_data);
    EXPECT_EQ(net.client.agreed.peer_to_peer, p2p);
    ping(net);
    net.client.close();
    net.run();
    EXPECT_EQ(net.client.story(), "starting established ended");
    EXPECT_EQ(net.server.story(), "request starting established ended");
    EXPECT_EQ(net.server.failure->fault, SessionFault::kNone);
    EXPECT_TRUE(net.closed(0) && net.closed(1));
    EXPECT_FALSE(net.was_reset(0) || net.was_reset(1));
  });
}

TEST(Session, WhatTheStreamSaysBeforeItIsKnownToRunIsToldBehindIt) {
  SessionPair net(1);
  net.client.offer.peer_to_peer = true;
  net.server.runs_late = true;
  begin(net);
  net.run();
  net.client.close();
  net.run();
  EXPECT_EQ(net.server.story(), "request starting");
  net.server.session.stream_running(net.server.endpoint.clock);
  net.server.follow();
  EXPECT_EQ(net.server.story(), "request starting established ended");
}

TEST(Session, AWrongOfferChangesNothing) {
  SessionPair net(1);
  net.client.offer.revision = 3;
  EXPECT_EQ(net.client.start().error(), Error::kInvalidArgument);
  net.client.offer.revision = 2;
  begin(net);
  net.run();
  EXPECT_TRUE(net.client.session.is_established());
}

TEST(Session, TheApplicationMayAnswerLaterAndAsLateAsItLikes) {
  SessionPair net(1);
  net.server.accepts_at_once = false;
  begin(net);
  net.run();
  EXPECT_EQ(net.server.story(), "request");
  EXPECT_TRUE(net.server.deadline().is_never());
  EXPECT_TRUE(net.server.accept().has_value());
  EXPECT_EQ(net.server.accept().error(), Error::kBadState);
  net.run();
  EXPECT_EQ(net.server.story(), "request starting established");
}

TEST(Session, ARejectionCarriesPrivateDataAndEndsBothWithoutReset) {
  SessionPair net(1);
  net.server.rejects_at_once = true;
  net.server.private_data = "not today";
  begin(net);
  net.run();
  EXPECT_EQ(net.client.story(), "rejected");
  EXPECT_EQ(net.client.peer_data, "not today");
  EXPECT_EQ(net.server.story(), "request");
  EXPECT_TRUE(net.closed(0) && net.closed(1));
  EXPECT_FALSE(net.was_reset(0) || net.was_reset(1));
}

// --- time limits ---

TEST(SessionLimits, AResponderWaitsSoLongForTheRequest) {
  SessionPair net(1);
  net.server.await_request();
  net.inject(0, Octets(19, 'M'));
  EXPECT_EQ(net.server.deadline(), Instant{1} + 5s);
  net.server.expired(Instant{1} + 5s - 1ns);
  EXPECT_TRUE(net.server.story().empty());
  EXPECT_TRUE(net.wait());
  EXPECT_EQ(net.server.failure->fault, SessionFault::kRequestTimeout);
  EXPECT_TRUE(net.closed(1));
}

TEST(SessionLimits, AnInitiatorWaitsSoLongForTheReply) {
  SessionPair net(1);
  ASSERT_TRUE(net.client.start().has_value());
  net.run();
  EXPECT_EQ(net.client.deadline(), Instant{1} + 30s);
  EXPECT_TRUE(net.wait());
  EXPECT_EQ(net.client.failure->fault, SessionFault::kReplyTimeout);
  EXPECT_TRUE(net.was_reset(0));
}

TEST(SessionLimits, AnAnswerThatThePeerDoesNotTakeEndsTheConnection) {
  for (const bool no : {false, true}) {
    SessionSide server({}, 1);
    server.rejects_at_once = no;
    server.await_request();
    feed(server, request());
    EXPECT_EQ(server.story(), "request");
    EXPECT_EQ(server.deadline(), Instant{1} + 5s);
    server.expired(server.deadline());
    EXPECT_EQ(server.failure.has_value(), !no) << "who has said no is told nothing";
    if (!no) {
      EXPECT_EQ(server.failure->fault, SessionFault::kSendTimeout);
    }
    EXPECT_TRUE(server.finished());
    EXPECT_TRUE(server.wants_reset());
  }
}

TEST(SessionLimits, AResponderWaitsSoLongForTheRtr) {
  SessionSide server({}, 1);
  server.await_request();
  proto::StartupOffer offer;
  offer.peer_to_peer = true;
  feed(server, request(offer));
  (void)server.gather(SIZE_MAX);
  EXPECT_EQ(server.story(), "request starting");
  server.expired(Instant{1} + 10s - 1ns);
  EXPECT_EQ(server.story(), "request starting");
  server.expired(Instant{1} + 10s);
  EXPECT_EQ(server.story(), "request starting failed");
  EXPECT_EQ(server.failure->fault, SessionFault::kRtrTimeout);
  EXPECT_TRUE(server.finished());
  EXPECT_TRUE(server.endpoint.down.has_value());
}

TEST(SessionLimits, ASilentPeerIsSpokenToInItsTime) {
  SessionPair net(1);
  begin(net);
  net.run();
  std::uint8_t* from = net.server.endpoint.take(10);
  net.client.endpoint.post_recv(1, net.client.endpoint.take(10), 10);
  net.server.endpoint.post_send(SendOp::kSend, SendFlags::kSignaled, 1, from, 10);
  net.run();
  EXPECT_TRUE(net.client.endpoint.recvs.empty()) << "a responder waits for the first FPDU";
  EXPECT_EQ(net.server.deadline(), Instant{1} + 50ms);
  EXPECT_TRUE(net.wait());
  EXPECT_EQ(net.client.endpoint.recvs.size(), 1U);
}

TEST(SessionLimits, ZeroMeansNone) {
  proto::SessionLimits limits;
  limits.request_timeout = limits.reply_timeout = limits.rtr_timeout = Duration{0};
  SessionPair net(1, limits);
  begin(net);
  EXPECT_TRUE(net.client.session.deadline().is_never());
  EXPECT_TRUE(net.server.session.deadline().is_never());
  net.run();
  EXPECT_TRUE(net.client.session.deadline().is_never());
  EXPECT_TRUE(net.server.session.deadline().is_never());
}

// --- failures ---

TEST(SessionFailure, OctetsThatAreNoRequestAreReportedAsWhatTheyAre) {
  const struct {
    Octets octets;
    StartupFailure why;
  } cases[] = {{Octets(20, 'x'), StartupFailure::kNotMpa},
               {reply(), StartupFailure::kTwoResponders}};
  for (const auto& c : cases) {
    SessionPair net(1);
    net.server.await_request();
    net.inject(0, c.octets);
    net.run();
    EXPECT_EQ(net.server.story(), "failed");
    EXPECT_EQ(net.server.failure->fault, SessionFault::kProtocol);
    EXPECT_EQ(net.server.failure->startup, c.why);
    EXPECT_TRUE(net.closed(1));
  }
}

TEST(SessionFailure, RevisionZeroIsAnsweredBeforeTheEnd) {
  SessionPair net(1);
  net.server.await_request();
  Octets old = request();
  old[17] = 0;  // revision; the S bit means nothing there
  net.inject(0, old);
  net.run();
  EXPECT_EQ(net.server.failure->startup, StartupFailure::kRevisionZero);
  EXPECT_EQ(net.server.frame_octets, kMpaFrameSize) << "the answer";
  EXPECT_FALSE(net.was_reset(1));
}

TEST(SessionFailure, AnOctetBehindTheRequestIsAViolationBeforeAndAfterTheApplicationIsAsked) {
  Octets more = request();
  more.push_back(0);
  SessionSide early({}, 1);
  early.await_request();
  feed(early, more);
  EXPECT_EQ(early.story(), "failed") << "in one piece the application never hears of it";
  EXPECT_EQ(early.failure->startup, StartupFailure::kDataBehindRequest);

  SessionPair late(1);
  late.server.accepts_at_once = false;
  late.server.await_request();
  late.inject(0, request());
  late.run();
  late.inject(0, Octets{0});
  late.run();
  EXPECT_EQ(late.server.story(), "request failed");
  EXPECT_EQ(late.server.accept().error(), Error::kBadState);
}

TEST(SessionFailure, FinOrResetAtAnyMomentOfStartUpIsReportedOnce) {
  for (std::size_t at = 0; at < 24; ++at) {
    for (const bool reset : {false, true}) {
      SCOPED_TRACE("after " + std::to_string(at) + " octets");
      SessionPair net(at + 1);
      net.server.await_request();
      const Octets whole = request();
      net.server.accepts_at_once = false;
      net.inject(0, {whole.data(), std::min(at, whole.size())});
      net.run();
      reset ? net.reset() : net.cut(0);
      net.run();
      const auto fault = reset ? SessionFault::kTransport : SessionFault::kClosedByPeer;
      ASSERT_TRUE(net.server.failure.has_value());
      EXPECT_EQ(net.server.failure->fault, fault);
      EXPECT_TRUE(net.server.finished());
    }
  }
}

TEST(SessionFailure, AReplyThatCannotBeWorkedWithIsAnsweredByATerminate) {
  SessionPair net(1);
  net.client.offer.peer_to_peer = true;
  net.client.offer.rtr_read = false;  // Write alone
  ASSERT_TRUE(net.client.start().has_value());
  proto::Startup responder = proto::Startup::responder();
  proto::StartupOffer only_read;
  only_read.peer_to_peer = true;
  only_read.rtr_write = false;
  ASSERT_TRUE(responder.received(request(only_read)).has_value());
  ASSERT_TRUE(responder.accept(only_read).has_value());
  const auto frame = responder.to_send();
  (void)net.client.gather(SIZE_MAX);
  feed(net.client, {frame.begin(), frame.end()});
  EXPECT_EQ(net.client.failure->fault, SessionFault::kUnusableReply);
  EXPECT_EQ(net.client.stream->end_code().code, 7);
  EXPECT_FALSE(net.client.gather(SIZE_MAX).empty()) << "the Terminate is still to be sent";
}

TEST(SessionFailure, APeerThatLeavesWithoutItsRtrFailsTheSetUp) {
  for (const bool reset : {false, true}) {
    SessionSide server({}, 1);
    server.await_request();
    proto::StartupOffer offer;
    offer.peer_to_peer = true;
    feed(server, request(offer));
    (void)server.gather(SIZE_MAX);
    reset ? server.transport_lost() : server.peer_closed();
    const auto fault = reset ? SessionFault::kStreamLost : SessionFault::kEndedUnused;
    EXPECT_EQ(server.failure->fault, fault);
    EXPECT_FALSE(server.ended);
  }
}

TEST(SessionFailure, AbortIsReportedInEveryPhase) {
  for (int phase = 0; phase < 4; ++phase) {
    SCOPED_TRACE(phase);
    SessionPair net(1);
    net.server.accepts_at_once = phase >= 2;
    begin(net);
    if (phase >= 1) net.run();
    if (phase == 3) ping(net);
    net.server.abort();
    net.run();
    EXPECT_EQ(net.server.ended, phase >= 2);
    EXPECT_EQ(net.server.failure->fault, SessionFault::kAborted);
    net.server.abort();
    EXPECT_TRUE(net.was_reset(1));
  }
}

// Whatever octets come, in whatever pieces: one outcome, everything given back.
TEST(SessionHostile, AnyOctetsGiveOneOutcome) {
  for_each_seed(2000, [&](std::uint64_t seed) {
    Rng rng(seed);
    SessionPair net(seed);
    net.chunk_max = rng.size(1, 64);
    const bool to_client = rng.one_in(2);
    net.client.offer.peer_to_peer = rng.one_in(2);
    if (to_client) {
      ASSERT_TRUE(net.client.start().has_value());
    } else {
      net.server.await_request();
    }
    Octets octets = to_client ? reply(net.client.offer) : request(net.client.offer);
    for (std::size_t flips = rng.size(0, 2); flips != 0; --flips) {
      octets[rng.size(0, octets.size() - 1)] ^= static_cast<std::uint8_t>(1U << rng.size(0, 7));
    }
    for (std::size_t more = rng.size(0, 60); more != 0; --more) octets.push_back(rng.octet());
    net.inject(to_client ? 1 : 0, octets);
    net.run();
    rng.one_in(2) ? net.cut(to_client ? 1 : 0) : net.reset();
    net.run();
    while (net.wait()) {
    }
    SessionSide& side = net.side(to_client ? 0 : 1);
    if (!side.finished()) side.abort();
    net.run();
    const int outcomes =
        (side.failure ? 1 : 0) + (side.story().find("rejected") != std::string::npos ? 1 : 0);
    EXPECT_EQ(outcomes, 1) << side.story();
    EXPECT_TRUE(side.finished());
  });
}

}  // namespace
}  // namespace weft::testing
