// Real peers, played from what is known of their bytes: Linux siw, Chelsio, Intel and Windows. Each
// test says which habit of which peer it is about.
#include <gtest/gtest.h>

#include <thread>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;
using raw::kBitA;
using raw::kRtrRead;
using raw::kRtrWrite;
using Type = ConnectionEvent::Type;

// A responder's answer to this Request.
raw::MpaFrame reply_to(const Bytes& request, bool crc_default = true) {
  Config config = plain_config();
  config.crc = crc_default;
  Server server(config);
  raw::Peer peer = server.dial();
  peer.send(request);
  server.accept();
  raw::MpaFrame reply = peer.recv_mpa();
  EXPECT_TRUE(peer.quiet(milliseconds(20)));  // siw and Chelsio close on anything behind it
  return reply;
}

// siw as initiator reads the enhanced words without looking whether they are there, and fails on M.
TEST(PeerSiw, ReplyToItHasSAndFourOctetsAndNoM) {
  for (const bool crc : {false, true}) {
    const std::uint8_t flags = crc ? raw::kS | raw::kC : raw::kS;
    const raw::MpaFrame reply =
        reply_to(raw::mpa_request(flags, 2, raw::enhanced(128, 128)), false);
    EXPECT_EQ(reply.revision, 2);
    EXPECT_EQ(reply.flags, flags);  // siw uses the CRC iff the Reply says so
    EXPECT_GE(reply.pd.size(), 4U);
    EXPECT_NE(reply.ird(), 0x3fff);  // which siw takes for a number
    EXPECT_NE(reply.ord(), 0x3fff);
  }
}

// siw as responder echoes the whole flag octet of the Request.
TEST(PeerSiw, ReplyThatEchoesTheRequestFlagsIsTaken) {
  for (const bool crc : {false, true}) {
    Config config = plain_config();
    config.crc = crc;
    Client client(config);
    raw::Peer peer = client.connect();
    const raw::MpaFrame request = peer.recv_mpa();
    const auto rtr = static_cast<std::uint16_t>(kRtrWrite | 16);
    peer.send(raw::mpa_reply(request.flags, request.revision, raw::enhanced(kBitA | 16, rtr)));
    take_event(*client.weft.events, Type::kEstablished);
    peer.framing.crc = crc;
    EXPECT_TRUE(peer.recv_segment(raw::kWrite).payload.empty());  // the RTR siw prefers
  }
}

// siw refuses a Request with M by echoing it with R added.
TEST(PeerSiw, RejectThatEchoesMarkersIsARejection) {
  Client client;
  ConnectionParams params;
  params.policy.markers = true;
  raw::Peer peer = client.connect(params);
  const raw::MpaFrame request = peer.recv_mpa();
  EXPECT_TRUE(request.has(raw::kM));
  peer.send(raw::mpa_reply(request.flags | raw::kR, request.revision, raw::enhanced(0, 0)));
  EXPECT_EQ(take_event(*client.weft.events, Type::kRejected).error, Error::kRefused);
}

// siw's sender wraps where its length octet does; all lengths must still be told apart here.
TEST(PeerSiw, PrivateDataAroundTheOctetBorderIsExact) {
  for (const std::size_t size : {250U, 251U, 252U, 253U, 254U, 255U, 256U}) {
    SCOPED_TRACE(size);
    Server server;
    raw::Peer peer = server.dial();
    peer.send(raw::mpa_request(raw::kS, 2, raw::enhanced(1, 1) + raw::pattern(size)));
    ConnectionParams params;
    params.private_data = raw::pattern(size, 1);
    EXPECT_EQ(server.accept(params).private_data, raw::pattern(size));
    EXPECT_EQ(peer.recv_mpa().user_data(), raw::pattern(size, 1));
  }
}

// siw answers a Write out of bounds while Weft still writes; its Read Request header in a Terminate
// has the size where the MSN belongs.
TEST(PeerSiw, TerminateWithTheSizeInPlaceOfTheMsnNamesTheRead) {
  Session s({.role = Role::kInitiator});
  Memory sink(s.host, 64);
  post(*s.weft.qp, wr_read(1, 0x77, 0x100), {sink.sge()});
  raw::Segment request = s.peer.recv_segment(raw::kReadRequest);
  Bytes rebuilt = request.whole;
  for (std::size_t i = 0; i < 4; ++i) rebuilt[10 + i] = i == 3 ? 64 : 0;
  s.peer.send_fpdu(raw::terminate({0, 1, 1}, Attach::kDdpAndRead, rebuilt, raw::Layout::kSiw));
  EXPECT_EQ(take(*s.weft.send_cq).status, WcStatus::kRemoteAccess);
  s.expect_failed();
}

// What siw takes without looking ends the connection here, and nothing is touched.
TEST(PeerSiw, ReadRequestsItDoesNotCheckAreChecked) {
  raw::Untagged bad{.opcode = raw::kReadRequest, .qn = 1, .payload = {}};
  const auto expect = [](raw::Untagged segment, raw::Code code, Attach attach) {
    Session s;
    Bytes body =
        raw::read_request(1, {.size = 8, .src_stag = s.canary.rkey(), .src_to = s.canary.to()});
    segment.payload.assign(body.begin() + 18, body.end());
    s.expect_violation(raw::ulpdu(segment), code, attach);
  };
  raw::Untagged queue = bad;
  queue.qn = 0;
  expect(queue, {1, 2, 1}, Attach::kDdp);
  raw::Untagged offset = bad;
  offset.mo = 28;
  expect(offset, {1, 2, 4}, Attach::kDdp);
  raw::Untagged not_last = bad;
  not_last.last = false;
  expect(not_last, {0, 2, 0xff}, Attach::kDdp);
}

TEST(PeerSiw, SurplusInAReadRequestTerminates) {
  Session s;
  s.expect_violation(raw::read_request(1, {}) + raw::zeros(4), {0, 2, 0xff}, Attach::kDdp);
}

// The memory-safety faults of siw's receiver: a Read Response that grows past its Read, and one
// that changes its target half-way. Octets around the sink must stay.
TEST(PeerSiw, ReadResponseCannotReachPastItsSink) {
  struct Case {
    std::int64_t stag_xor, to;
    std::size_t size;
    bool last;
  };
  for (const Case& c : {Case{0, 8, 5000, false}, Case{0, 8, 5000, true}, Case{0, 5000, 8, true},
                        Case{0, -5000, 8, true}, Case{0x100, 8, 8, true}}) {
    for (const bool crc : {true, false}) {
      SCOPED_TRACE(std::to_string(c.to) + " + " + std::to_string(c.size) + (crc ? ", CRC" : ""));
      Session s({.crc = crc});
      Memory memory(s.host, 16384, Access::kLocalWrite);
      post(*s.weft.qp, wr_read(1, 5, 0), {memory.sge(8192, 16)});
      const raw::ReadFields f = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
      s.peer.send_fpdu(raw::read_response(f.sink_stag, f.sink_to, raw::pattern(8), false));
      const auto stag = f.sink_stag ^ static_cast<std::uint32_t>(c.stag_xor);
      s.peer.send_fpdu(raw::read_response(stag, f.sink_to + static_cast<std::uint64_t>(c.to),
                                          raw::pattern(c.size), c.last));
      EXPECT_NE(take(*s.weft.send_cq).status, WcStatus::kSuccess);
      s.expect_failed();
      EXPECT_EQ(memory.copy(0, 8192), Bytes(8192, 0xee));
      EXPECT_EQ(memory.copy(8200, 8184), Bytes(8184, 0xee));
      EXPECT_TRUE(memory.guards_intact());
    }
  }
}

// The other one: a length below that of the header, with a good STag and offset in what follows. No
// octet may be placed, whether or not a CRC protects the length.
TEST(PeerSiw, LengthsBelowTheHeaderTouchNothing) {
  for (const bool crc : {true, false}) {
    for (const std::size_t header : {14U, 18U}) {
      for (std::size_t length = 0; length < header; ++length) {
        SCOPED_TRACE(std::to_string(length) + " of " + std::to_string(header) +
                     (crc ? ", CRC" : ""));
        Session s({.crc = crc});
        Memory in(s.host, 64);
        post_recv(*s.weft.qp, 1, {in.sge()});
        Bytes cut = header == 14 ? raw::write(s.canary.rkey(), s.canary.to(), raw::pattern(32))
                                 : raw::send(1, raw::pattern(32));
        const Bytes rest(cut.begin() + static_cast<std::ptrdiff_t>(length), cut.end());
        cut.resize(length);
        // Behind it what was cut off, as if the length were a slip.
        s.peer.send(s.peer.frame(cut) + rest);
        s.expect_failed();
        s.expect_flushed_recvs({1});
        EXPECT_TRUE(s.canary.untouched());
        EXPECT_TRUE(in.untouched());
      }
    }
  }
}

// As responder siw may not look at what comes while it gets ready behind its Reply. Weft does:
// first octets at once behind the Reply, again and again.
TEST(PeerSiw, WhatComesRightBehindTheReplyIsNeverOverlooked) {
  Server server;
  const Bytes request =
      raw::mpa_request(raw::kC | raw::kS, 2, raw::enhanced(kBitA | 4, kRtrWrite | 4));
  for (int round = 0; round < 100; ++round) {
    Endpoint end(server.host);
    Memory in(server.host, 64);
    post_recv(*end.qp, 1, {in.sge()});
    raw::Peer peer = server.dial();
    peer.send(request);
    const auto asked = take_event(*server.weft.events, Type::kConnectRequest);
    asked.connection->set_channel(end.events);
    std::thread waits([&] {
      (void)peer.recv_mpa();
      peer.send_fpdus({raw::write(1, 0, {}), raw::send(1, raw::text("at once"))});
    });
    const Status accepted = asked.connection->accept(end.qp, {});
    waits.join();
    must(accepted, "accept");
    EXPECT_EQ(take_success(*end.recv_cq, 1).byte_len, 7U);
  }
}

// siw closes behind its Terminate at once; a reset may overtake it. Either way all is flushed once.
TEST(PeerSiw, TerminateFollowedByAResetFlushesOnce) {
  Session s({.role = Role::kInitiator});
  Memory sink(s.host, 64);
  post_empty_recvs(*s.weft.qp, 1, 2);
  post(*s.weft.qp, wr_read(11, 0x77, 0x100), {sink.sge()});
  (void)s.peer.recv_segment(raw::kReadRequest);
  s.peer.send_fpdu(raw::terminate({1, 1, 1}));
  s.peer.reset();
  EXPECT_NE(take(*s.weft.send_cq).status, WcStatus::kSuccess);
  s.expect_flushed_recvs({1, 2});
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(5)));
}

// Chelsio as initiator aborts unless the Reply has A and the Read bit and not the Write bit.
TEST(PeerChelsio, ReplyToItNamesReadAlone) {
  for (const int bits : {int{kRtrRead}, kRtrRead | kRtrWrite}) {
    const raw::MpaFrame reply = reply_to(raw::mpa_request(
        raw::kC | raw::kS, 2, raw::enhanced(kBitA | 32, static_cast<std::uint16_t>(bits | 32))));
    EXPECT_NE(reply.ird_word() & kBitA, 0);
    EXPECT_EQ(reply.ord_word() & (kRtrRead | kRtrWrite), kRtrRead);
    EXPECT_GE(reply.ird(), 1);
  }
}

// As responder it has the CRC on, takes a Read as RTR alone, and that with an STag that is not 0.
TEST(PeerChelsio, AsResponderItGetsItsReadRtr) {
  Config config = plain_config();
  config.crc = false;
  Client client(config);
  raw::Peer peer = client.connect();
  const raw::MpaFrame request = peer.recv_mpa();
  ASSERT_NE(request.ird_word() & kBitA, 0);
  peer.send(raw::mpa_reply(request.flags | raw::kC, 2,
                           raw::enhanced(kBitA | 32, static_cast<std::uint16_t>(kRtrRead | 32))));
  take_event(*client.weft.events, Type::kEstablished);
  const raw::Segment first = peer.recv_segment(raw::kReadRequest);
  const raw::ReadFields rtr = raw::parse_read(first);
  EXPECT_EQ(rtr.size, 0U);
  EXPECT_NE(rtr.src_stag, 0U);
  EXPECT_NE(rtr.sink_stag, 0U);
}

// It comes back in revision 1 after a reset, then with a Read RTR nobody announced.
TEST(PeerChelsio, Revision1WithItsReadRtrIsTaken) {
  Server server;
  server.dial().reset();
  raw::Peer peer = server.dial();
  peer.send(raw::mpa_request(raw::kC, 1));
  server.accept();
  EXPECT_EQ(peer.recv_mpa().revision, 1);
  peer.send_fpdu(raw::read_request(1, {.sink_stag = 0x1000, .size = 0, .src_stag = 0x2000}));
  EXPECT_EQ(peer.recv_segment(raw::kReadResponse).stag, 0x1000U);
}

// Its driver's Terminates are four octets in the order of the RFC.
TEST(PeerChelsio, ItsBareTerminatesAreRead) {
  struct Row {
    raw::Code code;
    WcStatus status;
  };
  for (const Row& row :
       {Row{{0, 1, 2}, WcStatus::kRemoteAccess}, Row{{1, 0, 0}, WcStatus::kRemoteOperation},
        Row{{1, 2, 3}, WcStatus::kRemoteInvalidRequest},
        Row{{1, 2, 5}, WcStatus::kRemoteInvalidRequest}}) {
    SCOPED_TRACE(raw::to_string(row.code));
    Session s({.role = Role::kInitiator});
    Memory sink(s.host, 8);
    post(*s.weft.qp, wr_read(1, 5, 0), {sink.sge()});
    (void)s.peer.recv_segment(raw::kReadRequest);
    s.peer.send_fpdu(raw::terminate(row.code));
    EXPECT_EQ(take(*s.weft.send_cq).status, row.status);
    s.expect_failed();
  }
}

// Intel's adapters require A in both frames, may ask for markers and know 0x3fff.
TEST(PeerIrdma, ItsRequestIsAnsweredInKind) {
  const raw::MpaFrame reply =
      reply_to(raw::mpa_request(raw::kC | raw::kM | raw::kS, 2,
                                raw::enhanced(kBitA | 0x3fff, kRtrRead | kRtrWrite | 0x3fff)));
  EXPECT_TRUE(reply.has(raw::kC));
  EXPECT_NE(reply.ird_word() & kBitA, 0);
  EXPECT_EQ(reply.ird(), 0x3fff);
  EXPECT_EQ(reply.ord(), 0x3fff);
  EXPECT_NE(reply.ord_word() & (kRtrRead | kRtrWrite), 0);
}

// SMB Direct in revision 1 begins its private data with IRD and ORD; they are the application's.
TEST(PeerWindows, SmbDirectHeaderIsPrivateData) {
  Server server;
  raw::Peer peer = server.dial();
  const Bytes header = raw::hex("00000010 00000010");
  peer.send(raw::mpa_request(raw::kC, 1, header));
  ConnectionParams params;
  params.private_data = header;
  EXPECT_EQ(server.accept(params).private_data, header);
  EXPECT_EQ(peer.recv_mpa().pd, header);
  peer.send_fpdu(raw::read_request(1, {.size = 0}));
  EXPECT_TRUE(peer.recv_segment(raw::kReadResponse).payload.empty());
}

}  // namespace
}  // namespace weft::test
