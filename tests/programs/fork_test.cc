// Programs that fork: the child starts afresh, the parent notices nothing.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "abi_support.h"

namespace weft::abi {
namespace {

// A Send through a connected pair of this process. 0 when it arrived.
int exchange() {
  Connected pair;
  if (testing::Test::HasFailure()) return 1;
  pair.passive.post_recv(1, 0, 64);
  send_some(pair.active, 32);
  if (testing::Test::HasFailure()) return 2;
  ibv_wc wc{};
  if (!next_completion(pair.passive.id->recv_cq, wc)) return 3;
  return wc.status == IBV_WC_SUCCESS && wc.byte_len == 32 ? 0 : 4;
}

// Runs `work` in a child and gives its result; 100 and more: it was ended by a signal.
template <class Work>
int in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(Fork, BeforeTheDeviceIsOpenedBothSidesWork) {
  const pid_t child = fork();
  if (child == 0) _exit(exchange());
  EXPECT_EQ(exchange(), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Fork, AfterTheDeviceIsOpenedTheChildOpensItsOwn) {
  EXPECT_EQ(exchange(), 0);
  EXPECT_EQ(in_child(exchange), 0);
  EXPECT_EQ(exchange(), 0);
}

TEST(Fork, TheChildCannotTouchTheParentsObjects) {
  const Opened device;
  ibv_pd* pd = ibv_alloc_pd(device.get());
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(in_child([&] {
              if (ibv_alloc_pd(device.get()) != nullptr) return 1;
              if (errno != EINVAL) return 2;
              return ibv_dealloc_pd(pd) == EINVAL ? 0 : 3;
            }),
            0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(Fork, AnOpenConnectionOutlivesAChildThatExits) {
  Connected pair;
  EXPECT_EQ(in_child([] {
              std::exit(0);  // destructors and atexit handlers included
              return 1;
            }),
            0);
  EXPECT_EQ(std::system("true"), 0);
  pair.passive.post_recv(1, 0, 64);
  send_some(pair.active, 16);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(pair.passive.id->recv_cq, wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

// The child has the queue's memory, but the connection is the parent's: it may not take from it
// what the parent waits for, nor read a descriptor that has its number by now.
// The call that failed leaves the id as it was: a second one does not find it "disconnecting".
TEST(Fork, AChildCannotDisconnectTheParentsId) {
  Connected pair;
  EXPECT_EQ(in_child([&] {
              if (rdma_disconnect(pair.active.id) != -1) return 1;
              if (rdma_disconnect(pair.active.id) != -1) return 2;
              return errno == EINVAL ? 0 : 3;
            }),
            0);
  pair.passive.post_recv(1, 0, 64);
  send_some(pair.active, 32);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(pair.passive.id->recv_cq, wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(rdma_disconnect(pair.active.id), 0);
  EXPECT_EQ(NextEvent(pair.passive_channel()).type(), RDMA_CM_EVENT_DISCONNECTED);
}

TEST(Fork, AChildThatPollsTheParentsQueueTakesNothing) {
  Connected pair;
  pair.passive.post_recv(1, 0, 64);
  send_some(pair.active, 16);
  EXPECT_EQ(in_child([&] {
              ibv_cq* cq = pair.passive.id->recv_cq;
              ibv_wc wc{};
              // The child may find what was complete before the fork, in its copy of the memory, or
              // an error.
              for (int i = 0; i < 1000; ++i) ibv_poll_cq(cq, 1, &wc);
              return 0;
            }),
            0);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(pair.passive.id->recv_cq, wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 16U);
}

// A server that forks and sleeps in poll(2) over its channel's descriptor goes on hearing of
// events, and its child, which has a copy of the descriptor, opens the device for itself.
TEST(Fork, AParentThatSleepsInPollOverItsChannelHearsOfEvents) {
  Connected pair;
  ibv_cq* cq = pair.passive.id->recv_cq;
  ibv_comp_channel* channel = pair.passive.id->recv_cq_channel;
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  pair.passive.post_recv(1, 0, 64);
  EXPECT_EQ(in_child(exchange), 0);
  send_some(pair.active, 16);
  ASSERT_TRUE(readable(channel->fd));
  ibv_cq* which = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &which, &context), 0);
  EXPECT_EQ(which, cq);
  ibv_ack_cq_events(which, 1);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(cq, wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace weft::abi
