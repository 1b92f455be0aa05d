// Threads that are cancelled (pthread_cancel) in calls of libibverbs and librdmacm. A call that
// sleeps ends with its thread, every other call comes back first, and other threads go on with the
// same objects.

#include <rdma/rsocket.h>

#include <array>

#include "abi_support.h"
#include "support/cancelled.h"

namespace weft::abi {
namespace {

using test::comes_back;
using test::ends_in_its_sleep;

ibv_cq* next_cq(ibv_comp_channel* channel) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (!readable(channel->fd) || ibv_get_cq_event(channel, &cq, &context) != 0) return nullptr;
  return cq;
}

void expect_message(const Connected& pair, std::uint64_t wr_id) {
  ibv_cq* const cq = pair.passive.id->recv_cq;
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  pair.passive.post_recv(wr_id, 0, 64);
  send_some(pair.active, 64);
  EXPECT_EQ(next_cq(pair.passive.id->recv_cq_channel), cq);
  ibv_ack_cq_events(cq, 1);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(cq, wc));
  EXPECT_EQ(wc.wr_id, wr_id);
  ASSERT_TRUE(next_completion(pair.active.id->send_cq, wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

TEST(Cancel, AThreadInGetCqEventEndsAndOthersGoOnWithTheChannel) {
  const Connected pair;
  for (std::uint64_t wr_id = 1; wr_id < 6; ++wr_id) {
    ASSERT_EQ(ibv_req_notify_cq(pair.passive.id->recv_cq, 0), 0);
    EXPECT_TRUE(ends_in_its_sleep([&] {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      ibv_get_cq_event(pair.passive.id->recv_cq_channel, &cq, &context);
    }));
    expect_message(pair, wr_id);
  }
}

TEST(Cancel, AThreadInGetCmEventEndsAndNoEventIsLost) {
  const Listening listening;
  EXPECT_TRUE(ends_in_its_sleep([&] {
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(listening.channel.get(), &event);
  }));
  Calling calling(listening.port);
  calling.connect();
  NextEvent request(listening.channel.get());
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const id = request.id();
  request.ack();
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(Cancel, AThreadInGetAsyncEventEndsAndNoEventIsLost) {
  const Connected pair;
  EXPECT_TRUE(ends_in_its_sleep([&] {
    ibv_async_event event{};
    ibv_get_async_event(pair.passive.id->verbs, &event);
  }));
  violate(pair.active, pair.passive);
  ibv_async_event event{};
  ASSERT_TRUE(readable(pair.passive.id->verbs->async_fd));
  ASSERT_EQ(ibv_get_async_event(pair.passive.id->verbs, &event), 0);
  ibv_ack_async_event(&event);
}

TEST(Cancel, PostsAndPollsComeBackFirst) {
  const Connected pair;
  for (std::uint64_t wr_id = 1; wr_id <= 100; ++wr_id) {
    EXPECT_TRUE(comes_back([&] { pair.passive.post_recv(wr_id, 0, 4096); }));
    EXPECT_TRUE(comes_back([&] { send_some(pair.active, 4096); }));
    EXPECT_TRUE(comes_back([&] { ibv_req_notify_cq(pair.passive.id->recv_cq, 0); }));
    ibv_wc wc{};
    EXPECT_TRUE(comes_back([&] { EXPECT_TRUE(next_completion(pair.passive.id->recv_cq, wc)); }));
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_TRUE(comes_back([&] { EXPECT_TRUE(next_completion(pair.active.id->send_cq, wc)); }));
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
}

TEST(Cancel, ObjectsOfVerbsAreMadeAndDestroyedByThreadsThatAreCancelled) {
  std::array<char, 4096> memory{};
  ibv_context* context = nullptr;
  EXPECT_TRUE(comes_back([&] {
    ibv_device** list = ibv_get_device_list(nullptr);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
  }));
  ASSERT_NE(context, nullptr);
  EXPECT_TRUE(comes_back([&] {
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(), kLocalWrite);
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = ibv_create_cq(context, 16, nullptr, channel, 0);
    ibv_qp_init_attr attr = rc_attributes(cq);
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    EXPECT_NE(qp, nullptr);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_resize_cq(cq, 32), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  }));
  EXPECT_TRUE(comes_back([&] { EXPECT_EQ(ibv_close_device(context), 0); }));
}

TEST(Cancel, AConnectionIsMadeAndEndedByThreadsThatAreCancelled) {
  const Listening listening;
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = nullptr;
  auto peer = v4("127.0.0.1", listening.port);
  const auto expect = [](rdma_event_channel* from, rdma_cm_event_type type) {
    ASSERT_TRUE(readable(from->fd));
    EXPECT_TRUE(comes_back([&] {
      rdma_cm_event* event = nullptr;
      ASSERT_EQ(rdma_get_cm_event(from, &event), 0);
      EXPECT_EQ(event->event, type);
      EXPECT_EQ(rdma_ack_cm_event(event), 0);
    }));
  };
  EXPECT_TRUE(comes_back([&] { id = make_id(channel.get()); }));
  EXPECT_TRUE(
      comes_back([&] { EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 2000), 0); }));
  expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_TRUE(comes_back([&] { EXPECT_EQ(rdma_resolve_route(id, 2000), 0); }));
  expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  rdma_conn_param params{};
  EXPECT_TRUE(comes_back([&] {
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
    EXPECT_EQ(rdma_connect(id, &params), 0);
  }));
  rdma_cm_id* other = nullptr;
  {
    NextEvent request(listening.channel.get());
    ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    other = request.id();
  }
  EXPECT_TRUE(comes_back([&] {
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(other, nullptr, &attr), 0);
    EXPECT_EQ(rdma_accept(other, &params), 0);
  }));
  expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  expect(listening.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_TRUE(comes_back([&] { EXPECT_EQ(rdma_disconnect(id), 0); }));
  expect(channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  expect(listening.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  for (rdma_cm_id* one : {id, other}) {
    EXPECT_TRUE(comes_back([&] {
      rdma_destroy_qp(one);
      EXPECT_EQ(rdma_destroy_id(one), 0);
    }));
  }
}

TEST(Cancel, AThreadThatSleepsOnAnRsocketEndsAndOthersGoOn) {
  auto here = v4("127.0.0.1", 0);
  socklen_t length = sizeof here;
  const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(rbind(listener, generic(here), sizeof here), 0);
  ASSERT_EQ(rlisten(listener, 4), 0);
  ASSERT_EQ(rgetsockname(listener, generic(here), &length), 0);
  EXPECT_TRUE(ends_in_its_sleep([&] { raccept(listener, nullptr, nullptr); }));

  const int client = rsocket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(rconnect(client, generic(here), sizeof here), 0) << strerror(errno);
  const int server = raccept(listener, nullptr, nullptr);
  ASSERT_GE(server, 0) << strerror(errno);
  char octet = 0;
  pollfd one{server, POLLIN, 0};
  EXPECT_TRUE(ends_in_its_sleep([&] { rrecv(server, &octet, 1, 0); }));
  EXPECT_TRUE(ends_in_its_sleep([&] { rpoll(&one, 1, -1); }));
  EXPECT_EQ(rsend(client, "w", 1, 0), 1);
  EXPECT_EQ(rpoll(&one, 1, kWaitMs), 1);
  EXPECT_EQ(rrecv(server, &octet, 1, 0), 1);
  EXPECT_EQ(octet, 'w');
  for (const int fd : {server, client, listener}) {
    EXPECT_TRUE(comes_back([fd] { EXPECT_EQ(rclose(fd), 0); }));
  }
}

// Its number, and the lock behind it, are as good as before.
TEST(Cancel, AThreadThatConnectsAnRsocketEndsAndOthersGoOn) {
  auto here = v4("127.0.0.1", 0);
  socklen_t length = sizeof here;
  const int silent = socket(AF_INET, SOCK_STREAM, 0);  // never says whether it takes RDMA
  ASSERT_EQ(bind(silent, generic(here), sizeof here), 0);
  ASSERT_EQ(listen(silent, 4), 0);
  ASSERT_EQ(getsockname(silent, generic(here), &length), 0);
  const int client = rsocket(AF_INET, SOCK_STREAM, 0);
  EXPECT_TRUE(ends_in_its_sleep([&] { rconnect(client, generic(here), sizeof here); }));
  char octet = 0;
  EXPECT_TRUE(ends_in_its_sleep([&] { rrecv(client, &octet, 1, 0); }));
  EXPECT_EQ(rrecv(client, &octet, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(comes_back([&] { EXPECT_EQ(rclose(client), 0); }));
  close(silent);
}

}  // namespace
}  // namespace weft::abi
