// What the two start-up frames settle: CRC, markers, and the numbers of outstanding reads.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Bytes;
using Type = ConnectionEvent::Type;

struct Wishes {
  bool weft = false;
  bool peer = false;
};
constexpr Wishes kAllWishes[] = {{false, false}, {false, true}, {true, false}, {true, true}};

std::string name(Role role, const Wishes& wishes) {
  return std::string(to_string(role)) + ", asks " + (wishes.weft ? "yes" : "no") +
         ", its peer asks " + (wishes.peer ? "yes" : "no");
}

// A connection whose two sides want different things. Session has both want the same.
struct Negotiated {
  Negotiated(Role role, std::uint8_t peer_flags, const ConnectionParams& params, bool crc_default);
  std::unique_ptr<Host> host;
  std::unique_ptr<Endpoint> weft;
  raw::Peer peer;
  raw::MpaFrame frame;  // Weft's
};

Negotiated::Negotiated(Role role, std::uint8_t peer_flags, const ConnectionParams& params,
                       bool crc_default) {
  Config config = plain_config();
  config.crc = crc_default;
  host = std::make_unique<Host>(config);
  weft = std::make_unique<Endpoint>(*host);
  if (role == Role::kResponder) {
    const auto listener = listen(*host, weft->events);
    peer = raw::Peer::connect(listener->local_address().port());
    peer.send(raw::mpa_request(peer_flags, 1));
    weft->connection = take_event(*weft->events, Type::kConnectRequest).connection;
    must(weft->connection->accept(weft->qp, params), "accept");
    frame = peer.recv_mpa();
  } else {
    raw::Listener listener;
    weft->connection = must(host->device->create_connection(weft->events), "create");
    must(weft->connection->connect(weft->qp, address_of(listener), params), "connect");
    peer = listener.accept();
    frame = peer.recv_mpa();
    peer.send(raw::mpa_reply(peer_flags, 1));
  }
}

// Messages of many lengths in both directions; the raw side checks every octet of the framing.
void exchange(Negotiated& n) {
  Memory in(*n.host, 4096);
  Memory out(*n.host, 4096);
  out.fill_pattern(1);
  std::uint32_t msn = 1;
  for (const std::size_t size : {0U, 1U, 2U, 3U, 4U, 400U, 24U, 1200U, 37U, 4096U}) {
    SCOPED_TRACE(size);
    post_recv(*n.weft->qp, msn, {in.sge()});
    n.peer.send_fpdu(raw::send(msn, raw::pattern(size, msn)));
    EXPECT_EQ(take_success(*n.weft->recv_cq, msn).byte_len, size);
    EXPECT_EQ(in.copy(0, size), raw::pattern(size, msn));
    post(*n.weft->qp, wr_send(msn), {out.sge(0, size)});
    Bytes got;
    for (bool last = false; !last;) {
      const raw::Segment s = n.peer.recv_segment(raw::kSend);
      EXPECT_EQ(s.msn, msn);
      EXPECT_EQ(s.mo, got.size());
      got += s.payload;
      last = s.last;
    }
    EXPECT_EQ(got, out.copy(0, size));
    ++msn;
  }
}

//= RFC 5044 section 7.1.1
//# When this bit is '1' in either the MPA Request Frame or MPA Reply Frame, CRCs MUST be generated
//# and checked by both endpoints.
TEST(Rfc5044_7_1_1, CrcIsOnAsSoonAsEitherSideAsks) {
  for (const Role role : kBothRoles) {
    for (const Wishes& wishes : kAllWishes) {
      SCOPED_TRACE(name(role, wishes));
      Negotiated n(role, wishes.peer ? raw::kC : 0, plain_params(1), wishes.weft);
      const bool on = wishes.weft || wishes.peer;
      EXPECT_EQ(n.frame.has(raw::kC), role == Role::kResponder ? on : wishes.weft);
      n.peer.framing.crc = on;
      exchange(n);
      EXPECT_EQ(n.weft->connection->info().crc, on);
    }
  }
}

//= RFC 5044 section 4.1
//# When CRCs are not enabled, this field is still present, may contain any value, and MUST NOT be
//# checked.
TEST(Rfc5044_4_1, CrcFieldIsNotCheckedWhenCrcIsOff) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Negotiated n(role, 0, plain_params(1), false);
    n.peer.framing.crc = false;
    n.peer.framing.unused_crc = 0xdeadbeef;
    exchange(n);
  }
}

//= RFC 5044 section 4.4
//# If an MPA instance has declared that it does not require CRCs, it MUST turn off CRC checking
//# immediately after receipt of an MPA mode declaration indicating that its peer also does not
//# require CRCs.
TEST(Rfc5044_4_4, CrcIsOffFromTheFirstFpduWhenNeitherSideAsks) {
  Negotiated n(Role::kInitiator, 0, plain_params(1), false);
  n.peer.framing.crc = false;
  n.peer.framing.unused_crc = 1;
  post_empty_recvs(*n.weft->qp, 1, 1);
  n.peer.send_fpdu(raw::send(1, {}));
  take_success(*n.weft->recv_cq, 1);
}

//= RFC 5044 section 4.4
//# After receipt of an MPA startup declaration indicating that its peer requires CRCs, an MPA
//# instance MUST continue generating and checking CRCs until the connection terminates.
TEST(Rfc5044_4_4, CrcAskedForByThePeerAloneIsCheckedToTheEnd) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Negotiated n(role, raw::kC, plain_params(1), false);
    exchange(n);
    n.peer.send_fpdu(raw::send(11, {}), {.crc_xor = 1});
    n.peer.expect_terminate({2, 0, 2});
    n.peer.expect_fin();
  }
}

//= RFC 5044 section 7.1.1
//# When in a received MPA Request Frame or MPA Reply Frame and the value is '0', Markers MUST NOT
//# be added to the data stream by that endpoint.
//= RFC 5044 section 7.1.1
//# When '1' Markers MUST be added as described in Section 4.3, MPA Markers.
TEST(Rfc5044_7_1_1, MarkersGoToTheSideThatAskedAndOnlyThere) {
  for (const Role role : kBothRoles) {
    for (const Wishes& wishes : kAllWishes) {
      SCOPED_TRACE(name(role, wishes));
      ConnectionParams params = plain_params(1);
      params.policy.markers = wishes.weft;
      Negotiated n(role, wishes.peer ? raw::kC | raw::kM : raw::kC, params, true);
      EXPECT_EQ(n.frame.has(raw::kM), wishes.weft);
      n.peer.framing.markers_out = wishes.weft;
      n.peer.framing.markers_in = wishes.peer;
      exchange(n);
      EXPECT_EQ(n.weft->connection->info().markers_sent, wishes.peer);
      EXPECT_EQ(n.weft->connection->info().markers_received, wishes.weft);
    }
  }
}

TEST(Rfc5044_7_1_1, MarkersWorkWithoutCrcToo) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    ConnectionParams params = plain_params(1);
    params.policy.markers = true;
    Negotiated n(role, raw::kM, params, false);
    n.peer.framing = {.crc = false, .markers_out = true, .markers_in = true, .unused_crc = 7};
    exchange(n);
  }
}

// The Reply of a responder with these numbers to a Request with those.
raw::MpaFrame reply_to(std::uint16_t peer_ird, std::uint16_t peer_ord, std::uint16_t ird,
                       std::uint16_t ord, ConnectionEvent* request = nullptr,
                       ConnectionInfo* info = nullptr) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(raw::mpa_request(raw::kC | raw::kS, 2, raw::enhanced(peer_ird, peer_ord)));
  ConnectionParams params;
  params.ird = ird;
  params.ord = ord;
  const ConnectionEvent event = server.accept(params);
  if (request != nullptr) *request = event;
  raw::MpaFrame reply = peer.recv_mpa();
  take_event(*server.weft.events, Type::kEstablished);
  if (info != nullptr) *info = server.weft.connection->info();
  return reply;
}

//= RFC 6581 section 9.1
//# The responder MUST set its ORD at most to the initiator IRD.
TEST(Rfc6581_9_1, ResponderOrdIsAtMostInitiatorIrd) {
  for (const std::uint16_t ird : U16s{0, 1, 4, 100, 128, 1000}) {
    SCOPED_TRACE(ird);
    ConnectionInfo info;
    const raw::MpaFrame reply = reply_to(ird, 4, 16, 128, nullptr, &info);
    EXPECT_LE(reply.ord(), ird);
    EXPECT_LE(info.ord, ird);
  }
}

TEST(Rfc6581_9_1, ResponderIrdCoversInitiatorOrdWherePossible) {
  for (const std::uint16_t ord : U16s{0, 1, 16, 128}) {
    SCOPED_TRACE(ord);
    EXPECT_GE(reply_to(4, ord, 128, 4).ird(), ord);
  }
  EXPECT_EQ(reply_to(4, 500, 0xffff, 4).ird(), limits::kIrd);
  EXPECT_EQ(reply_to(4, 500, 7, 4).ird(), 7);
}

//= RFC 6581 section 9.1
//# The responder and initiator MUST pass the peer's provided IRD and ORD values to the ULP, in
//# addition to using the values as calculated by the preceding rules.
TEST(Rfc6581_9_1, PeerNumbersReachTheApplication) {
  ConnectionEvent request;
  (void)reply_to(11, 22, 16, 16, &request);
  EXPECT_EQ(request.ird, 22);  // what the peer wants outstanding: what to serve at most
  EXPECT_EQ(request.ord, 11);
}

//= RFC 6581 section 9.1
//# The responder MUST respond to an initiator ORD value of 0x3FFF by leaving its local endpoint
//# IRD value unchanged and setting the IRD to 0x3FFF in its reply message.
TEST(Rfc6581_9_1, InitiatorOrdNotNegotiatedIsAnsweredInKind) {
  ConnectionInfo info;
  EXPECT_EQ(reply_to(4, 0x3fff, 16, 4, nullptr, &info).ird(), 0x3fff);
  EXPECT_EQ(info.ird, 16);
}

//= RFC 6581 section 9.1
//# The responder MUST respond to an initiator IRD value of 0x3FFF by leaving its local endpoint
//# ORD value unchanged, and setting ORD to 0x3FFF in its reply message.
TEST(Rfc6581_9_1, InitiatorIrdNotNegotiatedIsAnsweredInKind) {
  ConnectionInfo info;
  EXPECT_EQ(reply_to(0x3fff, 4, 16, 12, nullptr, &info).ord(), 0x3fff);
  EXPECT_EQ(info.ord, 12);
}

// Weft as initiator, IRD 16 and ORD 12 of its own, after a Reply with these words.
ConnectionInfo after_reply(std::uint16_t reply_ird, std::uint16_t reply_ord) {
  Client client;
  ConnectionParams params = plain_params();
  params.ird = 16;
  params.ord = 12;
  raw::Peer peer = client.connect(params);
  const raw::MpaFrame request = peer.recv_mpa();
  EXPECT_EQ(request.ird_word(), 16);
  EXPECT_EQ(request.ord_word(), 12);
  peer.send(raw::mpa_reply(raw::kC | raw::kS, 2, raw::enhanced(reply_ird, reply_ord)));
  take_event(*client.weft.events, Type::kEstablished);
  return client.weft.connection->info();
}

//= RFC 6581 section 9.1
//# Upon receiving the MPA Accept Frame from the responder, the initiator MUST set its IRD at least
//# to the responder ORD and its ORD at most to the responder IRD.
TEST(Rfc6581_9_1, InitiatorOrdIsAtMostResponderIrd) {
  EXPECT_EQ(after_reply(5, 4).ord, 5);
  EXPECT_EQ(after_reply(100, 4).ord, 12);
  EXPECT_EQ(after_reply(0, 4).ord, 0);
  EXPECT_GE(after_reply(5, 16).ird, 16);
}

//= RFC 6581 section 9.1
//# The initiator MUST leave its local endpoint ORD value unchanged upon receiving a responder IRD
//# value of 0x3FFF.
TEST(Rfc6581_9_1, ResponderIrdNotNegotiatedLeavesOrdAlone) {
  EXPECT_EQ(after_reply(0x3fff, 4).ord, 12);
}

//= RFC 6581 section 9.1
//# The initiator MUST leave its local endpoint IRD value unchanged upon receiving a responder ORD
//# value of 0x3FFF.
TEST(Rfc6581_9_1, ResponderOrdNotNegotiatedLeavesIrdAlone) {
  EXPECT_EQ(after_reply(5, 0x3fff).ird, 16);
}

//= RFC 6581 section 9.1
//# If the initiator does not have sufficient resources for the required IRD, it MUST send a TERM
//# message to the responder indicating insufficient resources and terminate the connection due to
//# insufficient resources.
//= RFC 6581 section 9.1
//# Thus, the TERM message MUST contain Layer 2, Error Type 0, Error Code 6.
TEST(Rfc6581_9_1, InitiatorThatCannotServeResponderOrdTerminates) {
  for (const std::uint16_t ord : U16s{limits::kIrd + 1, 200, 0x3ffe}) {
    SCOPED_TRACE(ord);
    Client client;
    raw::Peer peer = client.connect(plain_params());
    (void)peer.recv_mpa();
    peer.send(raw::mpa_reply(raw::kC | raw::kS, 2, raw::enhanced(16, ord)));
    peer.expect_terminate({2, 0, 6});
    peer.expect_fin();
    take_event(*client.weft.events, Type::kConnectError);
  }
}

//= RFC 5040 section 6.1
//# * For outbound RDMA Read Requests, the RDMAP layer MUST NOT exceed the maximum number of
//# outstanding, outbound RDMA Read Requests that were negotiated between the ULP and the Local
//# Peer's RDMAP layer.
TEST(Rfc5040_6_1, NoMoreReadsAreOutstandingThanThePeerServes) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role, .peer_ird = 2});
    Memory sink(s.host, 64);
    for (std::uint64_t i = 0; i < 5; ++i) {
      post(*s.weft.qp, wr_read(i, 0x1234, 8 * i), {sink.sge(8 * i, 8)});
    }
    std::vector<raw::ReadFields> open;
    for (int i = 0; i < 2; ++i) {
      open.push_back(raw::parse_read(s.peer.recv_segment(raw::kReadRequest)));
    }
    for (std::uint64_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(s.peer.quiet(milliseconds(20)));
      s.peer.send_fpdu(raw::read_response(open[i].sink_stag, open[i].sink_to, raw::zeros(8)));
      take_success(*s.weft.send_cq, i);
      if (open.size() < 5) {
        open.push_back(raw::parse_read(s.peer.recv_segment(raw::kReadRequest)));
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
