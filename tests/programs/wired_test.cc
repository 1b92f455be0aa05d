// Queue pairs wired by hand through the C interface, with personality roce: what is told is what is
// shown, errors at the right request, datagrams with their route header, and a process that exits.
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "wired_end.h"

namespace weft::abi {
namespace {

TEST(WiredAbi, WhatWasToldIsWhatIsShown) {
  const End a, b;
  EXPECT_EQ(queried(a).qp_state, IBV_QPS_INIT);
  a.wire(b.address());
  const ibv_qp_attr shown = queried(a);
  const ibv_qp_attr rtr = End::rtr(b.address());
  const ibv_qp_attr rts = End::rts();
  EXPECT_EQ(shown.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(shown.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(shown.path_mtu, rtr.path_mtu);
  EXPECT_EQ(shown.dest_qp_num, rtr.dest_qp_num);
  EXPECT_EQ(shown.rq_psn, rtr.rq_psn);
  EXPECT_EQ(shown.sq_psn, rts.sq_psn);
  EXPECT_EQ(shown.max_dest_rd_atomic, rtr.max_dest_rd_atomic);
  EXPECT_EQ(shown.max_rd_atomic, rts.max_rd_atomic);
  EXPECT_EQ(shown.min_rnr_timer, rtr.min_rnr_timer);
  EXPECT_EQ(shown.timeout, rts.timeout);
  EXPECT_EQ(shown.retry_cnt, rts.retry_cnt);
  EXPECT_EQ(shown.rnr_retry, rts.rnr_retry);
  EXPECT_EQ(shown.qp_access_flags, static_cast<unsigned>(kRights));
  EXPECT_EQ(std::memcmp(&shown.ah_attr.grh.dgid, &rtr.ah_attr.grh.dgid, sizeof(ibv_gid)), 0);
  EXPECT_EQ(shown.ah_attr.grh.hop_limit, 9);
  EXPECT_EQ(shown.port_num, 1);
}

TEST(WiredAbi, EachAttributeOfATransitionHasToBeThereAndNoOther) {
  const End a, b;
  for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
    ibv_qp_attr attr = End::rtr(b.address());
    if ((End::kRtr & bit) != 0) {
      EXPECT_EQ(a.modify(attr, End::kRtr & ~bit), EINVAL) << bit;
    }
  }
  for (const int extra : {IBV_QP_SQ_PSN, IBV_QP_TIMEOUT, IBV_QP_QKEY, IBV_QP_CAP}) {
    ibv_qp_attr attr = End::rtr(b.address());
    EXPECT_EQ(a.modify(attr, End::kRtr | extra), EINVAL) << extra;
  }
  ibv_qp_attr early = End::rts();
  EXPECT_EQ(a.modify(early, End::kRts), EINVAL);
  EXPECT_EQ(queried(a).qp_state, IBV_QPS_INIT);
  a.wire(b.address());
}

TEST(WiredAbi, ASendWithAnImmediateBringsBoth) {
  End a, b;
  a.wire(b.address());
  b.wire(a.address());
  std::strcpy(a.memory_.data() + End::kSource, "octets");
  b.receive(1, 64);
  ibv_sge sge = a.source(7);
  ibv_send_wr wr = send_request(sge, 2);
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = htonl(0xc0ffee);
  ASSERT_EQ(a.post(wr), 0);
  const ibv_wc wc = b.next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_IMM, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(ntohl(wc.imm_data), 0xc0ffeeU);
  EXPECT_EQ(wc.byte_len, 7U);
  EXPECT_STREQ(b.memory_.data(), "octets");
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
}

TEST(WiredAbi, TheStructShowsTheStateThatWasSetOrAskedForLast) {
  const End a, b;
  a.wire(b.address());
  b.wire(a.address());
  ibv_sge sge = a.source(8);
  ibv_send_wr wr = send_request(sge, 1);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(b.memory_.data());
  wr.wr.rdma.rkey = b.mr_->rkey ^ 0x100U;
  ASSERT_EQ(a.post(wr), 0);
  EXPECT_EQ(a.next().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(a.qp_->state, IBV_QPS_RTS);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp_, &attr, IBV_QP_AV | IBV_QP_DEST_QPN, &init), 0);
  EXPECT_EQ(a.qp_->state, IBV_QPS_RTS);
  ASSERT_EQ(ibv_query_qp(a.qp_, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(a.qp_->state, IBV_QPS_ERR);
}

// The TCP sockets of this process that are connected to themselves.
std::vector<int> sockets_of_own_peers() {
  std::vector<int> out;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage own{};
    sockaddr_storage peer{};
    socklen_t own_size = sizeof own;
    socklen_t peer_size = sizeof peer;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) continue;
    if (own.ss_family != AF_INET && own.ss_family != AF_INET6) continue;
    if (own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0) out.push_back(fd);
  }
  return out;
}

TEST(WiredAbi, AQueuePairThatIsItsOwnPeerWaitsForNoDelayedAcknowledgement) {
  End end;
  end.wire(end.address());
  end.receive(1, 64);
  ibv_sge sge = end.source(7);
  ASSERT_EQ(end.post(send_request(sge, 2)), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(end.next().status, IBV_WC_SUCCESS);
  const std::vector<int> sockets = sockets_of_own_peers();
  ASSERT_EQ(sockets.size(), 1U);
  int no_delay = 0;
  socklen_t size = sizeof no_delay;
  ASSERT_EQ(getsockopt(sockets.front(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
  EXPECT_EQ(no_delay, 1);
}

// Only the last of the good ones wants a completion, and only the bad one behind it fails.
TEST(WiredAbi, ABadKeyIsTheErrorOfItsRequest) {
  const End a, b;
  a.wire(b.address());
  b.wire(a.address());
  for (std::uint64_t id = 1; id <= 5; ++id) {
    ibv_sge sge = a.source(8);
    ibv_send_wr wr = send_request(sge, id);
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = id >= 2 && id <= 4 ? unsigned{IBV_SEND_SIGNALED} : 0U;
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(b.memory_.data());
    wr.wr.rdma.rkey = id == 4 ? b.mr_->rkey ^ 0x100U : b.mr_->rkey;
    ASSERT_EQ(a.post(wr), 0);
  }
  struct Expected {
    std::uint64_t id;
    ibv_wc_status status;
  };
  for (const Expected& e : {Expected{2, IBV_WC_SUCCESS}, Expected{3, IBV_WC_SUCCESS},
                            Expected{4, IBV_WC_REM_ACCESS_ERR}, Expected{5, IBV_WC_WR_FLUSH_ERR}}) {
    const ibv_wc wc = a.next();
    EXPECT_EQ(wc.wr_id, e.id);
    EXPECT_EQ(wc.status, e.status) << ibv_wc_status_str(wc.status);
  }
  EXPECT_EQ(queried(a).qp_state, IBV_QPS_ERR);
}

class WiredDatagrams : public ::testing::Test {
 protected:
  // Sends `text` through `ah`, and expects it in request `id` of `to`.
  static ibv_wc deliver(End& from, ibv_ah* ah, End& to, const char* text, std::uint64_t id) {
    to.receive(id, 512);
    std::strcpy(from.memory_.data() + End::kSource, text);
    ibv_sge sge = from.source(std::strlen(text) + 1);
    ibv_send_wr wr = send_request(sge, 1);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = to.qp_->qp_num;
    wr.wr.ud.remote_qkey = kKey;
    EXPECT_EQ(from.post(wr), 0);
    EXPECT_EQ(from.next().status, IBV_WC_SUCCESS);
    const ibv_wc wc = to.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.byte_len, kGrh + std::strlen(text) + 1);
    EXPECT_EQ(wc.src_qp, from.qp_->qp_num);
    EXPECT_EQ(wc.wc_flags & IBV_WC_GRH, unsigned{IBV_WC_GRH});
    EXPECT_STREQ(to.memory_.data() + kGrh, text);
    return wc;
  }
};

TEST_F(WiredDatagrams, AnswerByWhatTheirReceiveSays) {
  for (const bool shared : {false, true}) {
    SCOPED_TRACE(shared);
    End a(IBV_QPT_UD), b(IBV_QPT_UD, shared);
    a.start_datagrams();
    b.start_datagrams();
    ibv_ah_attr way{};
    way.is_global = 1;
    way.port_num = 1;
    way.grh.dgid = b.address().gid;
    ibv_ah* const there = ibv_create_ah(a.pd_, &way);
    ASSERT_NE(there, nullptr);
    ibv_wc wc = deliver(a, there, b, "there", 7);
    // RoCE v2 over IPv4: the IP header in the last 20 octets, with what the sender's GID says.
    iphdr ip{};
    std::memcpy(&ip, b.memory_.data() + kGrh - sizeof ip, sizeof ip);
    EXPECT_EQ(ip.version, 4U);
    EXPECT_EQ(ip.protocol, 17);
    EXPECT_EQ(std::memcmp(&ip.saddr, a.address().gid.raw + 12, sizeof ip.saddr), 0);
    ibv_ah* const back =
        ibv_create_ah_from_wc(b.pd_, &wc, reinterpret_cast<ibv_grh*>(b.memory_.data()), 1);
    ASSERT_NE(back, nullptr);
    static_cast<void>(deliver(b, back, a, "and back", 8));
    EXPECT_EQ(ibv_destroy_ah(there), 0);
    EXPECT_EQ(ibv_destroy_ah(back), 0);
  }
}

TEST_F(WiredDatagrams, CarryTheTrafficClassAndTheHopLimitOfTheirAddressHandle) {
  End a(IBV_QPT_UD), b(IBV_QPT_UD);
  a.start_datagrams();
  b.start_datagrams();
  ibv_ah_attr way{};
  way.is_global = 1;
  way.port_num = 1;
  way.grh.dgid = b.address().gid;
  way.grh.traffic_class = 0x68;
  way.grh.hop_limit = 33;
  ibv_ah* const there = ibv_create_ah(a.pd_, &way);
  ASSERT_NE(there, nullptr);
  ibv_wc wc = deliver(a, there, b, "marked", 7);
  iphdr ip{};
  std::memcpy(&ip, b.memory_.data() + kGrh - sizeof ip, sizeof ip);
  EXPECT_EQ(ip.tos, 0x68);
  EXPECT_EQ(ip.ttl, 33);
  ibv_ah_attr back{};
  ASSERT_EQ(ibv_init_ah_from_wc(b.device_.get(), 1, &wc,
                                reinterpret_cast<ibv_grh*>(b.memory_.data()), &back),
            0);
  EXPECT_EQ(back.grh.traffic_class, 0x68);
  EXPECT_EQ(ibv_destroy_ah(there), 0);
}

TEST_F(WiredDatagrams, NeedAnAddressHandleAndFitTheMtu) {
  const End a(IBV_QPT_UD);
  a.start_datagrams();
  ibv_sge sge = a.source(8);
  EXPECT_NE(a.post(send_request(sge)), 0);
  ibv_ah_attr local{};
  local.port_num = 1;
  EXPECT_EQ(ibv_create_ah(a.pd_, &local), nullptr);  // a LID, which no RoCE device has
}

// Requests that the program leaves behind when it exits: taken by post_send, so they go out.
TEST(WiredExit, WhatWasPostedIsSentAllTheSame) {
  constexpr std::uint64_t kSends = 100;
  for (const bool in_bursts : {false, true}) {
    SCOPED_TRACE(in_bursts);
    int to_child[2], to_parent[2];
    ASSERT_EQ(pipe(to_child), 0);
    ASSERT_EQ(pipe(to_parent), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto* end = new End;  // is not destroyed
      const Address mine = end->address();
      Address peer;
      bool ok = write(to_parent[1], &mine, sizeof mine) == sizeof mine &&
                read(to_child[0], &peer, sizeof peer) == sizeof peer;
      end->wire(peer);
      for (std::uint64_t id = 0; ok && id < kSends; ++id) {
        ibv_sge sge = end->source(8);
        ibv_send_wr wr = send_request(sge, id);
        wr.send_flags = IBV_SEND_INLINE | (id == 0 ? unsigned{IBV_SEND_SIGNALED} : 0U);
        ok = end->post(wr) == 0;
        // The connection is up; in bursts, callers that poll are what sends.
        if (id == 0) ok = ok && end->next().status == IBV_WC_SUCCESS;
        if (in_bursts) static_cast<void>(end->polled());
      }
      std::exit(ok && !::testing::Test::HasFailure() ? 0 : 1);
    }
    End end;
    for (std::uint64_t id = 0; id < kSends; ++id) end.receive(id, 64);
    const Address mine = end.address();
    Address peer;
    ASSERT_EQ(read(to_parent[0], &peer, sizeof peer), static_cast<ssize_t>(sizeof peer));
    end.wire(peer);
    ASSERT_EQ(write(to_child[1], &mine, sizeof mine), static_cast<ssize_t>(sizeof mine));
    for (std::uint64_t id = 0; id < kSends; ++id) {
      const ibv_wc wc = end.next();
      ASSERT_EQ(wc.wr_id, id);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
  }
}

}  // namespace
}  // namespace weft::abi
