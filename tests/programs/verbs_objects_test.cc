// Devices and objects of the verbs ABI: what they look like, and what happens on bad input.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>

#include "verbs_objects.h"

namespace weft::abi {
namespace {

TEST_F(VerbsObjects, EveryDeviceListHasTheSamePointer) {
  ibv_device** first = ibv_get_device_list(nullptr);
  ibv_device** second = ibv_get_device_list(nullptr);
  int i = 0;
  while (first[i] != nullptr && first[i] != context()->device) ++i;
  EXPECT_EQ(first[i], context()->device);
  EXPECT_EQ(second[i], context()->device);
  ibv_free_device_list(first);
  ibv_free_device_list(second);
}

TEST_F(VerbsObjects, TheDeviceIsAnIwarpNicWithAnActiveEthernetPort) {
  EXPECT_EQ(context()->device->node_type, IBV_NODE_RNIC);
  EXPECT_EQ(context()->device->transport_type, IBV_TRANSPORT_IWARP);
  EXPECT_GE(context()->num_comp_vectors, 1);
  EXPECT_GE(fcntl(context()->cmd_fd, F_GETFD), 0);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.gid_tbl_len, 1);
  EXPECT_EQ(port.pkey_tbl_len, 1);
}

TEST_F(VerbsObjects, QueriesOfPortsAndTableEntriesThatAreNotThereFail) {
  ibv_port_attr port{};
  EXPECT_EQ(ibv_query_port(context(), 0, &port), EINVAL);
  EXPECT_EQ(ibv_query_port(context(), 2, &port), EINVAL);
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(context(), 1, 0, &gid), 0);
  EXPECT_EQ(ibv_query_gid(context(), 1, 1, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(context(), 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
  EXPECT_EQ(ibv_query_pkey(context(), 1, 1, &pkey), -1);
  EXPECT_EQ(ibv_get_pkey_index(context(), 1, pkey), 0);
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(context(), 1, 0, &entry, 0), 0);
  EXPECT_EQ(std::memcmp(&entry.gid, &gid, sizeof gid), 0);
  EXPECT_EQ(ibv_query_gid_ex(context(), 1, 1, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_table(context(), &entry, 1, 0), 1);
}

TEST_F(VerbsObjects, ADeviceQueryWritesNoMoreThanTheCallersStruct) {
  struct {
    ibv_device_attr_ex attr;
    std::array<std::uint8_t, 64> guard;
  } padded;
  std::memset(static_cast<void*>(&padded), 0xab, sizeof padded);
  verbs_context* verbs = verbs_get_ctx(context());
  constexpr std::size_t kOldSize = sizeof(ibv_device_attr) + 8;
  ASSERT_EQ(verbs->query_device_ex(context(), nullptr, &padded.attr, kOldSize), 0);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&padded);
  for (std::size_t i = kOldSize; i < sizeof padded; ++i) ASSERT_EQ(bytes[i], 0xab) << i;
  EXPECT_GT(padded.attr.orig_attr.max_qp, 0);
  EXPECT_EQ(padded.attr.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_EQ(verbs->query_device_ex(context(), nullptr, &padded.attr, 8), EINVAL);
}

TEST_F(VerbsObjects, ADomainWithChildrenIsBusyAndStaysUsable) {
  std::array<char, 64> memory{};
  ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(), kLocalWrite);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  ibv_mr* second = ibv_reg_mr(pd_, memory.data(), memory.size(), kLocalWrite);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(ibv_dereg_mr(second), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(VerbsObjects, AFreedRegionIsRefusedTheSecondTime) {
  std::array<char, 64> memory{};
  ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(), 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), EINVAL);
}

TEST_F(VerbsObjects, ARegionOfNoBytesIsRefused) {
  char octet = 0;
  for (void* address : {static_cast<void*>(&octet), static_cast<void*>(nullptr)}) {
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(pd_, address, 0, kLocalWrite), nullptr);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_EQ(ibv_reg_mr_iova2(pd_, address, 0, 0, kLocalWrite), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  ibv_mr* one = ibv_reg_mr(pd_, &octet, 1, kLocalWrite);
  EXPECT_NE(one, nullptr);
  EXPECT_EQ(ibv_dereg_mr(one), 0);
}

TEST_F(VerbsObjects, RegionsWithRightsThatMakeNoSenseAreRefused) {
  std::array<char, 64> memory{};
  const auto errno_for = [&](unsigned access) {
    errno = 0;
    ibv_mr* mr = ibv_reg_mr_iova2(pd_, memory.data(), memory.size(),
                                  reinterpret_cast<std::uintptr_t>(memory.data()), access);
    if (mr != nullptr) ibv_dereg_mr(mr);
    return mr != nullptr ? 0 : errno;
  };
  EXPECT_EQ(errno_for(IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(errno_for(IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(errno_for(1U << 15U), EINVAL);
  EXPECT_EQ(errno_for(IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE), EOPNOTSUPP);
  EXPECT_EQ(errno_for(IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(errno_for(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING), 0);
  EXPECT_EQ(errno_for(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_HUGETLB), 0);
}

TEST_F(VerbsObjects, RegisteringMemoryThatCannotBeUsedIsEfault) {
  constexpr int kRemoteRead = IBV_ACCESS_REMOTE_READ;
  const std::size_t size = 4 * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  ibv_mr* mr = ibv_reg_mr(pd_, at, size, kRemoteRead);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kLocalWrite),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd_, at, size, kLocalWrite), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(munmap(at, size), 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd_, at, size, kRemoteRead), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(VerbsObjects, ReregisteringMovesARegionAndAMistakeLeavesItAlone) {
  std::array<char, 64> memory{};
  std::array<char, 128> other{};
  ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(), kLocalWrite);
  ASSERT_NE(mr, nullptr);
  const std::uint32_t key = mr->lkey;
  EXPECT_EQ(ibv_rereg_mr(mr, 1 << 9, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(mr->lkey, key);
  EXPECT_EQ(mr->addr, memory.data());
  EXPECT_EQ(
      ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.data(), other.size(), 0), 0);
  EXPECT_EQ(mr->addr, other.data());
  EXPECT_EQ(mr->length, other.size());
  ibv_pd* pd = ibv_alloc_pd(context());
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0), 0);
  EXPECT_EQ(mr->pd, pd);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(VerbsObjects, OnlyReliableConnectedQpsExist) {
  for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND}) {
    ibv_qp_init_attr attr = rc_attributes(cq_);
    attr.qp_type = type;
    EXPECT_EQ(ibv_create_qp(pd_, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST_F(VerbsObjects, QpsRefuseMissingQueuesAndSizesAboveTheDevices) {
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  EXPECT_EQ(ibv_create_qp(pd_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(context(), &limits), 0);
  attr = rc_attributes(cq_);
  attr.cap.max_send_wr = static_cast<std::uint32_t>(limits.max_qp_wr) + 1;
  EXPECT_EQ(ibv_create_qp(pd_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr = rc_attributes(cq_);
  attr.cap.max_recv_sge = static_cast<std::uint32_t>(limits.max_sge) + 1;
  EXPECT_EQ(ibv_create_qp(pd_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr = rc_attributes(cq_);
  attr.cap.max_inline_data = 1U << 20U;
  EXPECT_EQ(ibv_create_qp(pd_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(VerbsObjects, ANewQpSaysWhatItHolds) {
  ibv_qp_init_attr attr = rc_attributes(cq_);
  attr.cap.max_inline_data = 2;
  ibv_qp* qp = ibv_create_qp(pd_, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_GE(attr.cap.max_send_wr, 16U);
  EXPECT_GE(attr.cap.max_inline_data, 64U);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp, &now, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
  EXPECT_EQ(now.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(now.cap.max_send_wr, attr.cap.max_send_wr);
  EXPECT_EQ(init.send_cq, cq_);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsObjects, InfinibandAddressingIsRefusedAndChangesNothing) {
  ibv_qp* qp = make_qp();
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  constexpr int kToRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, kToRtr), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  attr.port_num = 2;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_PORT), EINVAL);
  EXPECT_EQ(ibv_modify_qp(qp, &attr, 1 << 27), EINVAL);
  attr.qp_state = IBV_QPS_SQE;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
  attr.cur_qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_CUR_STATE), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsObjects, AnUnconnectedQpDoesNotBecomeReady) {
  ibv_qp* qp = make_qp();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  attr.qp_access_flags = 1U << 30U;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsObjects, TheErrorStateFlushesReceivesAndWhateverIsPostedLater) {
  ibv_qp* qp = make_qp();
  ASSERT_NE(qp, nullptr);
  std::array<char, 16> memory{};
  ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(), kLocalWrite);
  ibv_sge sge = sge_of(memory.data(), memory.size(), mr);
  ibv_recv_wr recv{7, nullptr, &sge, 1};
  ibv_recv_wr* bad_recv = nullptr;
  ASSERT_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
  ASSERT_EQ(set_state(qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(qp->state, IBV_QPS_ERR);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(cq_, wc));
  EXPECT_EQ(wc.wr_id, 7U);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.qp_num, qp->qp_num);
  ibv_send_wr send = send_request(sge, 8);
  ibv_send_wr* bad_send = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &send, &bad_send), 0);
  ASSERT_TRUE(next_completion(cq_, wc));
  EXPECT_EQ(wc.wr_id, 8U);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(set_state(qp, IBV_QPS_RESET), 0);
  EXPECT_EQ(set_state(qp, IBV_QPS_INIT), 0);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(VerbsObjects, AFullReceiveQueueNamesTheRequestThatDidNotFit) {
  ibv_qp* qp = make_qp(4);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp, &now, IBV_QP_CAP, &init), 0);
  std::vector<ibv_recv_wr> list(now.cap.max_recv_wr + 2);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = {i, i + 1 < list.size() ? &list[i + 1] : nullptr, nullptr, 0};
  }
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, list.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &list[now.cap.max_recv_wr]);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsObjects, RequestsThatMakeNoSenseAreRefusedByName) {
  ibv_qp* qp = make_qp();
  ASSERT_NE(qp, nullptr);
  ibv_recv_wr second{2, nullptr, nullptr, -1};
  ibv_recv_wr first{1, &second, nullptr, 0};
  ibv_recv_wr* bad_recv = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, &first, &bad_recv), EINVAL);
  EXPECT_EQ(bad_recv, &second);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);  // still in INIT
  EXPECT_EQ(bad_send, &send);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsObjects, DestroyedObjectsAnswerTheDataPathWithAnError) {
  ibv_qp* qp = make_qp();
  ibv_cq* cq = ibv_create_cq(context(), 8, nullptr, nullptr, 0);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  ASSERT_EQ(ibv_destroy_cq(cq), 0);
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
  EXPECT_EQ(bad_send, &send);
  ibv_wc wc{};
  EXPECT_LT(ibv_poll_cq(cq, 1, &wc), 0);
  EXPECT_EQ(ibv_req_notify_cq(cq, 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq, 16), EINVAL);
}

TEST_F(VerbsObjects, PointersToNothingOfOursAreRefused) {
  ibv_pd invented{};
  invented.context = context();
  EXPECT_EQ(ibv_dealloc_pd(&invented), EINVAL);
  EXPECT_EQ(ibv_reg_mr(&invented, &invented, 1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_qp(nullptr), EINVAL);
  EXPECT_EQ(ibv_alloc_pd(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // A handle of another kind is no better.
  EXPECT_EQ(ibv_destroy_cq(reinterpret_cast<ibv_cq*>(pd_)), EINVAL);
}

TEST_F(VerbsObjects, AClosedContextIsRefused) {
  ibv_context* second = ibv_open_device(context()->device);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, context());
  EXPECT_EQ(ibv_close_device(second), 0);
  EXPECT_EQ(ibv_alloc_pd(second), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_close_device(second), -1);
}

TEST_F(VerbsObjects, WhatIwarpDoesNotHaveIsNotSupported) {
  ibv_ah_attr ah{};
  EXPECT_EQ(ibv_create_ah(pd_, &ah), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_xrcd_init_attr xrcd{};
  EXPECT_EQ(ibv_open_xrcd(context(), &xrcd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_qp* qp = make_qp();
  ibv_gid gid{};
  EXPECT_EQ(ibv_attach_mcast(qp, &gid, 0), EOPNOTSUPP);
  ibv_ece ece{};
  EXPECT_EQ(ibv_query_ece(qp, &ece), EOPNOTSUPP);
  EXPECT_EQ(ibv_qp_to_qp_ex(qp), nullptr);  // not made for the builder
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_, 0, 4096, 0, 0, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_import_pd(context(), 1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(VerbsObjects, ParentDomainsStandForTheirDomain) {
  ibv_td_init_attr td_attr{};
  ibv_td* td = ibv_alloc_td(context(), &td_attr);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr attr{};
  attr.pd = pd_;
  attr.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(context(), &attr);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  ibv_qp_init_attr qp_attr = rc_attributes(cq_);
  ibv_qp* qp = ibv_create_qp(parent, &qp_attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->pd, parent);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST_F(VerbsObjects, ForkSupportIsNotNeeded) {
  EXPECT_EQ(ibv_fork_init(), 0);
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

}  // namespace
}  // namespace weft::abi
