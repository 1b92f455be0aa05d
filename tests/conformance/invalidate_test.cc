// Send with Invalidate: which STags a peer may make invalid, and when. RFC 5040 sections 5.3
// and 7.2.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;
using raw::Code;

constexpr auto kInvalidatable = kAllAccess | Access::kRemoteInvalidate;

Bytes send_invalidate(std::uint32_t msn, std::uint32_t stag, const Bytes& payload = {},
                      bool solicited = false) {
  return raw::ulpdu(raw::Untagged{.opcode = solicited ? raw::kSendSeInv : raw::kSendInv,
                                  .msn = msn,
                                  .payload = payload,
                                  .rsvd = stag});
}

// The Send ends the stream; its receive says why, the next one is flushed.
void expect_cannot_invalidate(Session& s, std::uint32_t stag, Code code,
                              int line = __builtin_LINE()) {
  post_empty_recvs(*s.weft.qp, 1, 2);
  s.expect_violation(send_invalidate(1, stag), code, Attach::kDdp, {}, line);
  EXPECT_EQ(take(*s.weft.recv_cq, line).status, WcStatus::kRemoteInvalidRequest) << "line " << line;
  EXPECT_EQ(take(*s.weft.recv_cq, line).status, WcStatus::kFlushed) << "line " << line;
}

//= RFC 5040 section 5.3
//# * When the Send with Invalidate and Send with Solicited Event and Invalidate Message are
//# Delivered to the Remote Peer's RDMAP layer, the RDMAP layer MUST:
TEST(Rfc5040_5_3, StagIsInvalidWhenTheSendIsDelivered) {
  for (const bool solicited : {false, true}) {
    SCOPED_TRACE(solicited);
    Session s;
    Memory region(s.host, 64, kInvalidatable);
    Memory in(s.host, 16);
    post_recv(*s.weft.qp, 1, {in.sge()});
    s.peer.send_fpdu(raw::write(region.rkey(), region.to(), raw::text("before")));
    s.peer.send_fpdu(send_invalidate(1, region.rkey(), raw::text("done"), solicited));
    const WorkCompletion wc = take_success(*s.weft.recv_cq, 1);
    EXPECT_TRUE(has(wc.flags, WcFlags::kWithInvalidate));
    EXPECT_EQ(has(wc.flags, WcFlags::kSolicited), solicited);
    EXPECT_EQ(wc.invalidated_rkey, region.rkey());
    EXPECT_EQ(in.copy(0, 4), raw::text("done"));
    EXPECT_EQ(region.copy(0, 6), raw::text("before"));
    s.expect_violation(raw::write(region.rkey(), region.to(), raw::text("after")), {1, 1, 0},
                       Attach::kDdp);
    EXPECT_EQ(region.copy(0, 6), raw::text("before"));
  }
}

TEST(Rfc5040_5_3, OnlyTheLastSegmentOfTheSendInvalidates) {
  Session s;
  Memory region(s.host, 64, kInvalidatable);
  Memory in(s.host, 16);
  post_recv(*s.weft.qp, 1, {in.sge()});
  s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.opcode = raw::kSendInv,
                                            .last = false,
                                            .payload = raw::text("abcd"),
                                            .rsvd = region.rkey()}));
  s.peer.send_fpdu(raw::write(region.rkey(), region.to(), raw::text("meanwhile")));
  s.peer.send_fpdu(raw::ulpdu(raw::Untagged{
      .opcode = raw::kSendInv, .mo = 4, .payload = raw::text("efgh"), .rsvd = region.rkey()}));
  EXPECT_EQ(take_success(*s.weft.recv_cq, 1).byte_len, 8U);
  EXPECT_EQ(region.copy(0, 9), raw::text("meanwhile"));
}

TEST(Rfc5040_5_3, AnStagThatIsInvalidAlreadyIsNoError) {
  Session s;
  Memory region(s.host, 64, kInvalidatable);
  post_empty_recvs(*s.weft.qp, 1, 2);
  s.peer.send_fpdus({send_invalidate(1, region.rkey()), send_invalidate(2, region.rkey())});
  take_success(*s.weft.recv_cq, 1);
  take_success(*s.weft.recv_cq, 2);
  s.expect_alive(3, 3);
}

//= RFC 5040 section 7.2
//# The STag MUST be associated to this RDMAP Stream.
TEST(Rfc5040_7_2, InvalidatingAnStagOfAnotherDomainTerminates) {
  for (const Role role : kBothRoles) {
    Session s({.role = role});
    const auto pd = must(s.host.device->create_pd(), "create a protection domain");
    Memory foreign(*pd, 64, kInvalidatable);
    expect_cannot_invalidate(s, foreign.rkey(), {0, 1, 9});
  }
}

TEST(Rfc5040_7_2, InvalidatingWithTheWrongKeyOctetTerminates) {
  Session s;
  Memory region(s.host, 64, kInvalidatable);
  expect_cannot_invalidate(s, region.rkey() ^ 0x01U, {0, 1, 9});
}

//= RFC 5040 section 7.2
//# The Invalidate STag MUST be valid.
TEST(Rfc5040_7_2, InvalidatingAnUnknownStagTerminates) {
  Session s;
  Memory region(s.host, 64);
  expect_cannot_invalidate(s, region.rkey() ^ 0x5a5a5a00U, {0, 2, 9});
}

TEST(Rfc5040_7_2, InvalidatingARegionUnderAWindowTerminates) {
  Session s;
  Memory region(s.host, 64, kInvalidatable | Access::kBindWindow);
  const auto window = must(s.host.pd->create_window(MemoryWindow::Type::kType2), "create a window");
  post(*s.weft.qp, wr_bind(1, *window, *region.region, region.to(), 64, Access::kRemoteWrite,
                           next_rkey(*window)));
  take_success(*s.weft.send_cq, 1);
  expect_cannot_invalidate(s, region.rkey(), {0, 2, 9});
}

//= RFC 5040 section 8.1.1
//# An RNIC MUST ensure that a Remote Peer is not able to invalidate an STag enabled for remote
//# access, if the STag is shared on multiple streams.
TEST(Rfc5040_8_1_1, InvalidatingARegionSharedWithAnotherStreamTerminates) {
  Session s;
  Memory region(s.host, 64, kInvalidatable);
  Endpoint other(s.host);  // a second queue pair of the domain
  expect_cannot_invalidate(s, region.rkey(), {0, 2, 9});
}

// Not even a region that the peer may use. Staging memory and the sinks of Reads have no remote
// right at all.
TEST(Rfc5040_7_2, InvalidatingARegionThatDidNotOptInTerminates) {
  for (const Access access :
       {kAllAccess, Access::kRemoteRead, Access::kLocalWrite, Access::kNone}) {
    SCOPED_TRACE(static_cast<unsigned>(access));
    Session s;
    Memory region(s.host, 64, access);
    expect_cannot_invalidate(s, region.rkey(), {0, 2, 9});
    EXPECT_EQ(s.weft.qp->state(), QpState::kError);
  }
}

TEST(Rfc5040_5_3, APeerMayInvalidateTheWindowBoundForItsStream) {
  Session s;
  Memory region(s.host, 64, kAllAccess | Access::kBindWindow);
  Endpoint other(s.host);  // the region is shared, the window is not
  const auto window = must(s.host.pd->create_window(MemoryWindow::Type::kType2), "create a window");
  post(*s.weft.qp, wr_bind(1, *window, *region.region, region.to(16), 16, Access::kRemoteWrite,
                           next_rkey(*window)));
  take_success(*s.weft.send_cq, 1);
  post_empty_recvs(*s.weft.qp, 1, 1);
  s.peer.send_fpdu(raw::write(window->rkey(), region.to(16), raw::text("by window")));
  s.peer.send_fpdu(send_invalidate(1, window->rkey()));
  EXPECT_EQ(take_success(*s.weft.recv_cq, 1).invalidated_rkey, window->rkey());
  EXPECT_EQ(region.copy(16, 9), raw::text("by window"));
  s.expect_violation(raw::write(window->rkey(), region.to(16), raw::text("x")), {1, 1, 0},
                     Attach::kDdp);
}

}  // namespace
}  // namespace weft::test
