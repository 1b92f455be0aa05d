// A queue pair that programs connect out of band, through the C interface, and how it is found.
#pragma once

#include <array>

#include "abi_support.h"

namespace weft::abi {

inline constexpr std::size_t kGrh = 40;
inline constexpr std::uint32_t kKey = 0x1234;
inline constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// How an end is found: what programs tell each other.
struct Address {
  ibv_gid gid{};
  std::uint32_t qpn = 0;
};

// A queue pair of its own device, in INIT, with one completion queue and a region.
class End {
 public:
  explicit End(ibv_qp_type type = IBV_QPT_RC, bool shared = false, int qp_rights = kRights) {
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
    to_init(type, qp_rights);
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

  void to_init(ibv_qp_type type = IBV_QPT_RC, int qp_rights = kRights) const {
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qkey = kKey;
    init.qp_access_flags = static_cast<unsigned>(qp_rights);
    const int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    EXPECT_EQ(modify(init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), 0);
  }
  // A new address handle for datagrams to `peer`; the caller destroys it.
  [[nodiscard]] ibv_ah* way_to(const End& peer) const {
    ibv_ah_attr way{};
    way.is_global = 1;
    way.port_num = 1;
    way.grh.dgid = peer.address().gid;
    return ibv_create_ah(pd_, &way);
  }

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
  // Of this end's own device: the next asynchronous event. IBV_EVENT_CLIENT_REREGISTER: none.
  [[nodiscard]] ibv_event_type event(int timeout_ms = kWaitMs) const {
    ibv_async_event event{};
    if (!readable(device_.get()->async_fd, timeout_ms) ||
        ibv_get_async_event(device_.get(), &event) != 0) {
      return IBV_EVENT_CLIENT_REREGISTER;
    }
    ibv_ack_async_event(&event);
    return event.event_type;
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
  const Opened device_;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
};

inline ibv_qp_attr queried(const End& end) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(end.qp_, &attr, 0x1ffffff, &init), 0);
  return attr;
}

}  // namespace weft::abi
