// Queue pairs wired by hand through the C interface, with personality roce: what is told is what is
// shown, errors at the right request, datagrams with their route header, and a process that exits.
#include <netinet/ip.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "abi_support.h"

namespace weft::abi {
namespace {

constexpr std::size_t kGrh = 40;
constexpr std::uint32_t kKey = 0x1234;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC;

// How an end is found: what programs tell each other.
struct Address {
  ibv_gid gid{};
  std::uint32_t qpn = 0;
};

// A queue pair of its own device, in INIT, with one completion queue and a region.
class End {
 public:
  explicit End(ibv_qp_type type = IBV_QPT_RC, bool shared = false) {
    pd_ = ibv_alloc_pd(device_.get());
    cq_ = ibv_create_cq(device_.get(), 256, nullptr, nullptr, 0);
    ibv_qp_init_attr attr = rc_attributes(cq_, 128);
    attr.qp_type = type;
    attr.cap.max_inline_data = 64;
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr.max_wr = 16;
    srq_attr.attr.max_sge = 1;
    if (shared) attr.srq = srq_ = ibv_create_srq(pd_, &srq_attr);
    qp_ = ibv_create_qp(pd_, &attr);
    mr_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), kRights);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qkey = kKey;
    init.qp_access_flags = kRights;
    const int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    EXPECT_EQ(modify(init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), 0);
  }
  ~End() {
    ibv_destroy_qp(qp_);
    if (srq_ != nullptr) ibv_destroy_srq(srq_);
    ibv_dereg_mr(mr_);
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(pd_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  [[nodiscard]] Address address() const {
    Address out;
    EXPECT_EQ(ibv_query_gid(device_.get(), 1, 0, &out.gid), 0);
    out.qpn = qp_->qp_num;
    return out;
  }
  [[nodiscard]] int modify(ibv_qp_attr& attr, int mask) const {
    return ibv_modify_qp(qp_, &attr, mask | IBV_QP_STATE);
  }
  [[nodiscard]] static ibv_qp_attr rtr(const Address& peer) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer.qpn;
    a.rq_psn = 17;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 12;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.dgid = peer.gid;
    a.ah_attr.grh.hop_limit = 9;
    return a;
  }
  static constexpr int kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  [[nodiscard]] static ibv_qp_attr rts() {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = 6;
    a.rnr_retry = 5;
    a.sq_psn = 17;
    a.max_rd_atomic = 3;
    return a;
  }
  static constexpr int kRts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC;
  void wire(const Address& peer) const {
    ibv_qp_attr a = rtr(peer);
    ASSERT_EQ(modify(a, kRtr), 0);
    a = rts();
    ASSERT_EQ(modify(a, kRts), 0);
  }
  void start_datagrams() const {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(modify(a, 0), 0);
    a.qp_state = IBV_QPS_RTS;
    a.sq_psn = 5;
    ASSERT_EQ(modify(a, IBV_QP_SQ_PSN), 0);
  }
  void receive(std::uint64_t id, std::size_t size) {
    ibv_sge sge = sge_of(memory_.data(), size, mr_);
    ibv_recv_wr wr{id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(srq_ != nullptr ? ibv_post_srq_recv(srq_, &wr, &bad) : ibv_post_recv(qp_, &wr, &bad),
              0);
  }
  [[nodiscard]] ibv_sge source(std::size_t size) const {
    return sge_of(memory_.data() + kSource, size, mr_);
  }
  [[nodiscard]] int post(ibv_send_wr wr) const {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp_, &wr, &bad);
  }
  [[nodiscard]] ibv_wc next() const {
    ibv_wc wc{};
    EXPECT_TRUE(next_completion(cq_, wc));
    return wc;
  }
  [[nodiscard]] ibv_wc polled() const {  // at once, or all zero
    ibv_wc wc{};
    static_cast<void>(ibv_poll_cq(cq_, 1, &wc));
    return wc;
  }

  static constexpr std::size_t kSource = 4096;
  std::array<char, 8192> memory_{};
  ibv_pd* pd_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* mr_ = nullptr;

 private:
  const Opened device_;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
};

ibv_qp_attr queried(const End& end) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(end.qp_, &attr, 0x1ffffff, &init), 0);
  return attr;
}

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
