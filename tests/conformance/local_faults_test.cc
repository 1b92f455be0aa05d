// Memory of Weft's own side that is not there when it is needed. The Terminate tells the peer that
// the fault is not its own.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;

TEST(LocalFaults, ReceiveIntoMemoryThatIsNotRegisteredTerminates) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    Memory in(s.host, 16);
    post_recv(*s.weft.qp, 1, {in.sge()});
    post_recv(*s.weft.qp, 2, {});
    must(in.region->deregister(), "deregister");
    s.expect_violation(raw::send(1, raw::text("data")), {1, 0, 0}, Attach::kDdp);
    EXPECT_EQ(take(*s.weft.recv_cq).status, WcStatus::kLocalProtection);
    EXPECT_EQ(take(*s.weft.recv_cq).status, WcStatus::kFlushed);
    s.expect_async(AsyncEventType::kQpFatal);
    EXPECT_TRUE(in.untouched());
  }
}

TEST(LocalFaults, ReceiveWithoutTheLocalWriteRightTerminates) {
  Session s;
  Memory in(s.host, 16, Access::kRemoteRead);
  post_recv(*s.weft.qp, 1, {in.sge()});
  s.expect_violation(raw::send(1, raw::text("data")), {1, 0, 0}, Attach::kDdp);
  EXPECT_EQ(take(*s.weft.recv_cq).status, WcStatus::kLocalProtection);
  EXPECT_TRUE(in.untouched());
}

TEST(LocalFaults, SendFromMemoryThatIsNotRegisteredFailsThatRequest) {
  Session s;
  Memory out(s.host, 16);
  Sge bad = out.sge();
  bad.lkey ^= 0x5a5a5a00;
  post_empty_recvs(*s.weft.qp, 1, 1);
  post(*s.weft.qp, wr_send(1), {bad});
  post(*s.weft.qp, wr_send(2), {out.sge()});
  EXPECT_EQ(take(*s.weft.send_cq).status, WcStatus::kLocalProtection);
  EXPECT_EQ(take(*s.weft.send_cq).status, WcStatus::kFlushed);
  s.expect_flushed_recvs({1});
  for (const raw::Segment& seg : s.peer.recv_to_end()) EXPECT_EQ(seg.opcode, raw::kTerminate);
  s.peer.close();
  s.expect_failed();
}

TEST(LocalFaults, SendPastTheEndOfItsRegionFailsThatRequest) {
  Session s;
  Memory out(s.host, 16);
  Sge bad = out.sge();
  bad.length = 17;
  post(*s.weft.qp, wr_write(1, 5, 6), {bad});
  EXPECT_EQ(take(*s.weft.send_cq).status, WcStatus::kLocalProtection);
  s.peer.close();
  s.expect_failed();
}

TEST(LocalFaults, ReadIntoMemoryDeregisteredMeanwhilePlacesNothing) {
  Session s;
  Memory sink(s.host, 16);
  post(*s.weft.qp, wr_read(1, 5, 6), {sink.sge()});
  const raw::ReadFields f = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
  must(sink.region->deregister(), "deregister");
  s.expect_violation_code(raw::read_response(f.sink_stag, f.sink_to, raw::pattern(16)), {1, 1, 0});
  EXPECT_NE(take(*s.weft.send_cq).status, WcStatus::kSuccess);
  EXPECT_TRUE(sink.untouched());
}

}  // namespace
}  // namespace weft::test
