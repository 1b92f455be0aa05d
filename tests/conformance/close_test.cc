// How connections end: orderly, half-way, by reset, and by us. RFC 5041 section 6.2, RFC 5040
// section 6.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>

#include "session.h"

namespace weft::test {
namespace {

using raw::Bytes;
using Type = ConnectionEvent::Type;

//= RFC 5041 section 6.2.1
//# Following this event, when the Local Peer ULP requests graceful teardown, DDP MUST indicate to
//# the LLP that it SHOULD perform a graceful close of the other half of the LLP Stream.
TEST(Closing, FinOnAMessageBorderIsAnOrderlyEnd) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    post_empty_recvs(*s.weft.qp, 1, 3);
    s.peer.send_fpdu(raw::send(1, {}));
    s.peer.shutdown_write();
    take_success(*s.weft.recv_cq, 1);
    s.peer.expect_fin();
    EXPECT_FALSE(take_event(*s.weft.events, Type::kDisconnected).error.has_value());
    s.expect_flushed_recvs({2, 3});
  }
}

TEST(Closing, DisconnectSendsFinAndEndsOrderly) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    post_empty_recvs(*s.weft.qp, 1, 2);
    must(s.weft.connection->disconnect(), "disconnect");
    s.peer.expect_fin();
    s.peer.close();
    EXPECT_FALSE(take_event(*s.weft.events, Type::kDisconnected).error.has_value());
    s.expect_flushed_recvs({1, 2});
    (void)s.weft.connection->disconnect();  // harmless to repeat
    EXPECT_FALSE(next_event(*s.weft.events, milliseconds(20)).has_value());
  }
}

//= RFC 5041 section 6.2.1
//# If the Local Peer ULP indicates graceful teardown, the DDP layer on the Local Peer SHOULD
//# ensure that all ULP data would be transferred before the underlying LLP Stream and Connection
//# are torn down, and any further data transfer requests by the Local Peer ULP MUST return an
//# error.
TEST(Closing, WhatWasCompletedBeforeDisconnectArrives) {
  Session s;
  Memory out(s.host, 20000);
  out.fill_pattern(9);
  for (std::uint64_t id = 1; id <= 5; ++id) post(*s.weft.qp, wr_send(id), {out.sge()});
  for (std::uint64_t id = 1; id <= 5; ++id) take_success(*s.weft.send_cq, id);
  must(s.weft.connection->disconnect(), "disconnect");
  Bytes got;
  for (const raw::Segment& seg : s.peer.recv_to_end()) got += seg.payload;
  EXPECT_EQ(got.size(), 5 * out.size());
  s.peer.close();
  take_event(*s.weft.events, Type::kDisconnected);
  // What is posted now is refused, or taken and flushed.
  SendWr late = wr_send(6);
  if (s.weft.qp->post_send(late)) {
    EXPECT_EQ(take(*s.weft.send_cq).status, WcStatus::kFlushed);
  }
}

TEST(Closing, DisconnectInTheMiddleOfALongMessageFlushesWhatDidNotGo) {
  Start start;
  start.config.socket_buffer_bytes = 65536;
  start.socket.receive_buffer_bytes = 16384;
  Session s(start);
  Memory out(s.host, 4U << 20U);
  post(*s.weft.qp, wr_write(1, 2, 3), {out.sge()});
  post(*s.weft.qp, wr_send(2), {out.sge()});
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(20)));
  must(s.weft.connection->disconnect(), "disconnect");
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const WorkCompletion wc = take(*s.weft.send_cq);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, WcStatus::kFlushed);
  }
  // Whole FPDUs up to the FIN: recv_to_end() stops at the first that is cut.
  std::size_t got = 0;
  for (const raw::Segment& seg : s.peer.recv_to_end()) got += seg.whole.size();
  EXPECT_LT(got, out.size());
  s.peer.close();
  take_event(*s.weft.events, Type::kDisconnected);
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(5)));
}

// What is left to send has no room, and the end that has come is there to be read again and again.
TEST(Closing, APeerThatReadsNothingAndThenClosesCostsNoSpinning) {
  Start start;
  start.config.socket_buffer_bytes = 65536;
  start.config.close_timeout = milliseconds(300);
  start.socket.receive_buffer_bytes = 16384;
  Session s(start);
  Memory out(s.host, 4U << 20U);
  post(*s.weft.qp, wr_write(1, 2, 3), {out.sge()});
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(20)));
  const Counters before = s.host.device->counters();
  s.peer.shutdown_write();
  take_event(*s.weft.events, Type::kDisconnected);
  const Counters after = s.host.device->counters();
  EXPECT_LT(after.wakeups - before.wakeups, 50U);
  EXPECT_LT(after.rx_empty - before.rx_empty, 50U);
  EXPECT_LT(after.tx_blocked - before.tx_blocked, 50U);
  EXPECT_EQ(take(*s.weft.send_cq).status, WcStatus::kFlushed);
}

// A FIN at this octet of a stream of two FPDUs: a Send that arrives, and one that is cut.
void expect_cut_at(std::size_t cut) {
  SCOPED_TRACE(cut);
  Session s;
  Memory in(s.host, 64);
  for (std::uint64_t id = 1; id <= 3; ++id) post_recv(*s.weft.qp, id, {in.sge()});
  s.peer.send_fpdu(raw::send(1, {}));
  const Bytes second = s.peer.frame(raw::send(2, raw::pattern(9)));
  s.peer.send(raw::View(second).first(cut));
  s.peer.shutdown_write();
  take_success(*s.weft.recv_cq, 1);
  s.peer.expect_closed();  // and no Terminate: nobody reads it
  if (cut == second.size()) {
    take_success(*s.weft.recv_cq, 2);
    s.expect_flushed_recvs({3});
    EXPECT_FALSE(take_event(*s.weft.events, Type::kDisconnected).error.has_value());
    return;
  }
  s.expect_flushed_recvs({2, 3});
  EXPECT_EQ(take_event(*s.weft.events, Type::kDisconnected).error.has_value(), cut != 0);
}

TEST(Closing, FinAtEveryOctetOfAnFpdu) {
  const std::size_t size = raw::Peer().frame(raw::send(2, raw::pattern(9))).size();
  for (std::size_t cut = 0; cut <= size; ++cut) expect_cut_at(cut);
}

TEST(Closing, FinBetweenTheSegmentsOfAMessageIsAnError) {
  Session s;
  Memory in(s.host, 64);
  post_recv(*s.weft.qp, 1, {in.sge()});
  s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.last = false, .payload = raw::pattern(9)}));
  s.peer.shutdown_write();
  s.peer.expect_closed();
  s.expect_flushed_recvs({1});
  EXPECT_TRUE(take_event(*s.weft.events, Type::kDisconnected).error.has_value());

  Session w;
  w.peer.send_fpdu(raw::ulpdu(raw::Tagged{
      .last = false, .stag = w.canary.rkey(), .to = w.canary.to(), .payload = raw::pattern(9)}));
  w.peer.shutdown_write();
  w.peer.expect_closed();
  EXPECT_TRUE(take_event(*w.weft.events, Type::kDisconnected).error.has_value());
}

TEST(Closing, FinWithReadsOutstandingFlushesThem) {
  Session s;
  Memory sink(s.host, 64);
  post(*s.weft.qp, wr_read(1, 5, 0), {sink.sge(0, 8)});
  post(*s.weft.qp, wr_fetch_add(2, 5, 0, 1), {sink.sge(8, 8)});
  (void)s.peer.recv_segment(raw::kReadRequest);
  (void)s.peer.recv_segment(raw::kAtomicRequest);
  s.peer.shutdown_write();
  s.peer.expect_closed();
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const WorkCompletion wc = take(*s.weft.send_cq);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, WcStatus::kFlushed);
  }
  s.expect_failed();
}

TEST(Closing, ResetAtAnyTimeFlushesEverythingOnce) {
  for (const std::size_t cut : {0U, 1U, 10U, 30U}) {
    SCOPED_TRACE(cut);
    Session s;
    Memory memory(s.host, 64);
    post_empty_recvs(*s.weft.qp, 1, 2);
    post(*s.weft.qp, wr_read(11, 5, 0), {memory.sge(0, 8)});
    (void)s.peer.recv_segment(raw::kReadRequest);
    const Bytes fpdu = s.peer.frame(raw::send(1, raw::pattern(9)));
    s.peer.send(raw::View(fpdu).first(cut));
    s.peer.reset();
    EXPECT_EQ(take(*s.weft.send_cq).status, WcStatus::kFlushed);
    s.expect_flushed_recvs({1, 2});
    s.expect_failed();
    EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(5)));
  }
}

// After our FIN the peer sends this FPDU: the socket is reset, and nobody is told that it was
// wrong.
void expect_reset_after_our_fin(const std::function<Bytes(Session&)>& late,
                                const raw::Spoil& spoil = {}, int line = __builtin_LINE()) {
  SCOPED_TRACE(line);
  Start start;
  start.config.log = LogLevel::kInfo;
  ::testing::internal::CaptureStderr();
  Session s(start);
  post_empty_recvs(*s.weft.qp, 1, 1);
  s.peer.send_fpdu(raw::send(1, {}));
  take_success(*s.weft.recv_cq, 1);  // all that came before the FIN has been read
  must(s.weft.connection->disconnect(), "disconnect");
  s.peer.expect_fin();  // and no Terminate before it
  s.peer.send_fpdu(late(s), spoil);
  EXPECT_FALSE(take_event(*s.weft.events, Type::kDisconnected).error.has_value());
  EXPECT_TRUE(eventually([&] {
    // The reset shows on the next use of the socket.
    try {
      s.peer.send(raw::zeros(1));
      return false;
    } catch (const raw::Failure&) {
      return true;
    }
  }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("Terminate"), std::string::npos) << log;
  const Counters counters = s.host.device->counters();
  EXPECT_EQ(counters.crc_errors, 0U);
  EXPECT_EQ(counters.terminates_sent, 0U);
  EXPECT_FALSE(s.host.async_event(milliseconds(0)).has_value());
  EXPECT_TRUE(s.canary.untouched());
}

//= RFC 5041 section 6.2.1
//# If the DDP layer on the Local Peer receives a graceful teardown request from the LLP, any
//# further data received after the request is considered an error and MUST cause the DDP Stream to
//# be abortively torn down.
TEST(Closing, NewMessageAfterOurFinIsAnsweredByReset) {
  expect_reset_after_our_fin(
      [](Session& s) { return raw::write(s.canary.rkey(), s.canary.to(), raw::text("too late")); });
}

// The state comes before the CRC and the header: what is wrong with an FPDU that nobody wants is
// neither reported to the peer nor counted.
TEST(Closing, BadFpduAfterOurFinIsAnsweredByResetWithoutAReport) {
  const auto write = [](Session& s) {
    return raw::write(s.canary.rkey(), s.canary.to(), raw::text("too late"));
  };
  expect_reset_after_our_fin(write, {.crc_xor = 1});
  expect_reset_after_our_fin([](Session&) { return Bytes(1, 0); });  // no DDP header
  expect_reset_after_our_fin([&write](Session& s) {
    Bytes bad = write(s);
    bad[0] ^= 2U;  // the version of DDP
    return bad;
  });
}

TEST(Closing, PeerThatKeepsItsSideOpenIsClosedAfterTheDeadline) {
  Config config = plain_config();
  config.close_timeout = milliseconds(200);
  Session s({.config = config});
  must(s.weft.connection->disconnect(), "disconnect");
  s.peer.expect_fin();
  take_event(*s.weft.events, Type::kDisconnected);  // although the peer never closes

  Session t({.config = config});
  t.peer.send_fpdu(raw::send(1, {}));
  t.peer.expect_terminate({1, 2, 2}, raw::Attach::kDdp, raw::send(1, {}));
  t.peer.expect_fin();
  t.expect_failed();
}

TEST(Closing, AbortResetsAndFlushesBeforeItReturns) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    Memory memory(s.host, 8);
    post_empty_recvs(*s.weft.qp, 1, 2);
    post(*s.weft.qp, wr_read(11, 5, 0), {memory.sge()});
    (void)s.peer.recv_segment(raw::kReadRequest);
    s.weft.connection->abort();
    std::array<WorkCompletion, 4> done;
    EXPECT_EQ(s.weft.recv_cq->poll(done), 2U);
    EXPECT_EQ(s.weft.send_cq->poll(done), 1U);
    EXPECT_EQ(done[0].status, WcStatus::kFlushed);
    s.peer.expect_reset();
  }
}

TEST(Closing, MovingTheQpToErrorFlushesAndEndsTheConnection) {
  Session s;
  post_empty_recvs(*s.weft.qp, 1, 2);
  must(s.weft.qp->modify(QpState::kError), "move to the error state");
  s.expect_flushed_recvs({1, 2});
  (void)s.peer.drain();
  take_event(*s.weft.events, Type::kDisconnected);
  EXPECT_EQ(s.weft.qp->state(), QpState::kError);
}

TEST(Closing, DestroyingTheQpEndsTheConnection) {
  Session s;
  s.weft.connection.reset();
  s.weft.qp.reset();
  (void)s.peer.drain();
}

//= RFC 5040 section 7.1
//# If more than one error is detected on incoming RDMA Messages, before the Terminate Message can
//# be sent, then the first RDMA Message (and its associated DDP Segment) that experienced an error
//# MUST be captured by the Terminate Message, in accordance with rules 2 and 3 above.
TEST(Closing, OfTwoBadMessagesTheFirstIsReported) {
  Session s;
  post_empty_recvs(*s.weft.qp, 1, 2);
  const Bytes first = raw::write(s.canary.rkey(), s.canary.to(250), raw::pattern(8));
  s.peer.send_fpdus({first, raw::send(7, {}), raw::read_request(3, {})});
  s.peer.expect_terminate({1, 1, 1}, raw::Attach::kDdp, first);
  s.peer.expect_fin();
}

// While Weft is sending a long message its Terminate cuts the message, never an FPDU.
TEST(Closing, TerminateGoesOutAtTheNextFpduBorder) {
  Start start;
  start.config.recv_wait = milliseconds(0);
  start.config.socket_buffer_bytes = 65536;
  start.socket.receive_buffer_bytes = 16384;
  Session s(start);
  Memory out(s.host, 4U << 20U);
  post(*s.weft.qp, wr_write(1, 2, 3), {out.sge()});
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(20)));
  s.peer.send_fpdu(raw::send(1, {}));
  const auto segments = s.peer.recv_to_end();
  ASSERT_FALSE(segments.empty());
  EXPECT_EQ(segments.back().whole, raw::terminate({1, 2, 2}, raw::Attach::kDdp, raw::send(1, {})));
  for (std::size_t i = 0; i + 1 < segments.size(); ++i) {
    ASSERT_EQ(segments[i].opcode, raw::kWrite);
    ASSERT_FALSE(segments[i].last);
  }
  EXPECT_EQ(take(*s.weft.send_cq).status, WcStatus::kFlushed);
}

}  // namespace
}  // namespace weft::test
