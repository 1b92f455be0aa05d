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
  ibv_sge sge = pair.active.sge(0, 32);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  send.sg_list = &sge;
  send.num_sge = 1;
  if (post_send(pair.active, send) != 0) return 2;
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
  ibv_sge sge = pair.active.sge(0, 16);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  send.sg_list = &sge;
  send.num_sge = 1;
  ASSERT_EQ(post_send(pair.active, send), 0);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(pair.passive.id->recv_cq, wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace weft::abi
