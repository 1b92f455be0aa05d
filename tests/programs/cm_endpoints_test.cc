// rdma_cm's synchronous endpoints and its names.
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iterator>

#include "../support/quiet_port.h"
#include "abi_support.h"

namespace weft::abi {
namespace {

TEST(CmEndpoints, EndpointsWorkSynchronously) {
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", nullptr, &hints, &info), 0);
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(rdma_create_ep(&listener, info, nullptr, &attr), 0);
  rdma_freeaddrinfo(info);
  ASSERT_EQ(rdma_listen(listener, 1), 0);
  const std::string port = std::to_string(ntohs(rdma_get_src_port(listener)));

  auto served = std::async(std::launch::async, [&] {
    rdma_cm_id* id = nullptr;
    std::array<char, 64> memory{};
    if (rdma_get_request(listener, &id) != 0) return std::string("no request");
    ibv_mr* mr = rdma_reg_msgs(id, memory.data(), memory.size());
    rdma_post_recv(id, nullptr, memory.data(), memory.size(), mr);
    if (rdma_accept(id, nullptr) != 0) return std::string("not accepted");
    ibv_wc wc{};
    if (rdma_get_recv_comp(id, &wc) != 1) return std::string("no message");
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
    return std::string(memory.data(), wc.byte_len);
  });

  hints.ai_flags = 0;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", port.c_str(), &hints, &info), 0);
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_ep(&id, info, nullptr, &attr), 0);
  rdma_freeaddrinfo(info);
  std::string text = "synchronous";
  ibv_mr* mr = rdma_reg_msgs(id, text.data(), text.size());
  ASSERT_EQ(rdma_connect(id, nullptr), 0);
  ASSERT_EQ(rdma_post_send(id, nullptr, text.data(), text.size(), mr, IBV_SEND_SIGNALED), 0);
  ibv_wc wc{};
  EXPECT_EQ(rdma_get_send_comp(id, &wc), 1);
  EXPECT_EQ(served.get(), text);
  EXPECT_EQ(rdma_disconnect(id), 0);
  EXPECT_EQ(rdma_dereg_mr(mr), 0);
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// The first ones have made what is made once for the process.
TEST(CmEndpoints, AnEndpointTakesFiveDescriptorsAndACompletionQueueNone) {
  const Listening server;
  const std::string port = std::to_string(server.port);
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", port.c_str(), &hints, &info), 0);
  std::array<rdma_cm_id*, 3> ids{};
  std::ptrdiff_t before = 0;
  for (rdma_cm_id*& id : ids) {
    before = open_descriptors();
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    ASSERT_EQ(rdma_create_ep(&id, info, nullptr, &attr), 0);
  }
  EXPECT_LE(open_descriptors() - before, 5);
  rdma_freeaddrinfo(info);
  before = open_descriptors();
  ibv_cq* const cq = ibv_create_cq(ids[0]->verbs, 16, nullptr, nullptr, 0);
  EXPECT_EQ(open_descriptors() - before, 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  for (rdma_cm_id* id : ids) rdma_destroy_ep(id);
}

TEST(CmEndpoints, ASynchronousConnectThatIsRejectedFailsWithItsErrno) {
  Listening server;
  auto rejected = std::async(std::launch::async, [&] {
    NextEvent request(server.channel.get());
    rdma_cm_id* child = request.id();
    rdma_reject(child, "later", 5);
    request.ack();
    rdma_destroy_id(child);
  });
  rdma_cm_id* id = make_id(nullptr);
  auto peer = v4("127.0.0.1", server.port);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 1000), 0);
  ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
  EXPECT_EQ(rdma_connect(id, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(id->event->param.conn.private_data_len, 5);
  rejected.get();
  rdma_destroy_qp(id);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(CmEndpoints, ADisconnectReturnsAfterAConnectThatFailed) {
  const test::QuietPort nobody;
  const std::string port = std::to_string(nobody.number());
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", port.c_str(), &hints, &info), 0);
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_ep(&id, info, nullptr, &attr), 0);
  rdma_freeaddrinfo(info);
  EXPECT_EQ(rdma_connect(id, nullptr), -1);
  auto ended = std::async(std::launch::async, [&] { return rdma_disconnect(id); });
  // It would wait for good.
  if (ended.wait_for(std::chrono::seconds(20)) != std::future_status::ready) std::abort();
  EXPECT_EQ(ended.get(), 0);
  rdma_destroy_ep(id);
}

TEST(CmEndpoints, NamesAndAddressesResolve) {
  rdma_addrinfo* info = nullptr;
  EXPECT_EQ(rdma_getaddrinfo(nullptr, nullptr, nullptr, &info), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  EXPECT_EQ(rdma_getaddrinfo("not numeric", nullptr, &hints, &info), EAI_NONAME);
  ASSERT_EQ(rdma_getaddrinfo("::1", "7000", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET6);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_TCP);
  ASSERT_NE(info->ai_dst_addr, nullptr);
  EXPECT_EQ(info->ai_src_addr, nullptr);
  rdma_freeaddrinfo(info);
  hints.ai_flags = RAI_FAMILY;
  hints.ai_family = AF_INET6;
  ASSERT_EQ(rdma_getaddrinfo("::1", "7000", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET6);
  rdma_freeaddrinfo(info);
  hints.ai_family = 77;
  EXPECT_EQ(rdma_getaddrinfo("::1", "7000", &hints, &info), EAI_FAMILY);
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED");
}

}  // namespace
}  // namespace weft::abi
