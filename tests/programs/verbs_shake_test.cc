// Queue pairs under `weft run --shake` that share a queue, and go.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "abi_support.h"

namespace weft::abi {
namespace {

int post_to(ibv_srq* srq, const Connected::Side& side, std::size_t offset) {
  ibv_sge sge = side.sge(offset, 8);
  ibv_recv_wr wr{0, nullptr, &sge, 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(srq, &wr, &bad);
}

TEST(VerbsShake, WhatADestroyedQueuePairHadTakenHasNoRoomInASharedQueue) {
  constexpr int kDepth = 4;
  ibv_srq* srq = nullptr;
  const auto with_srq = [&](ibv_qp_init_attr_ex& attr) {
    if (srq == nullptr) {
      ibv_srq_init_attr init{};
      init.attr = {kDepth, 1, 0};
      srq = ibv_create_srq(attr.pd, &init);
    }
    attr.srq = srq;
  };
  for (int round = 0; round < 3; ++round) {
    Connected pair(with_srq);
    ASSERT_NE(srq, nullptr);
    pair.active.memory[0] = 1;
    for (std::size_t i = 0; i < kDepth; ++i) {
      ASSERT_EQ(post_to(srq, pair.passive, i * 64), 0);
      send_some(pair.active, 8);
    }
    for (std::size_t i = 0; i < kDepth; ++i) {
      const volatile std::uint8_t& first = pair.passive.memory[i * 64];
      ASSERT_TRUE(eventually([&] { return first == 1; }));
    }
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// Another thread polls their queue all the time.
TEST(VerbsShake, ADestroyedQueuePairCompletesNothing) {
  constexpr int kSends = 8;
  Opened device;
  ibv_cq* cq = nullptr;
  std::atomic<std::uint64_t> gone{0};  // requests with smaller numbers are
  std::atomic<std::uint64_t> polls{0};
  std::atomic<int> late{0};
  std::atomic<bool> ends{false};
  const auto poll_always = [&] {
    while (!ends) {
      const std::uint64_t before = gone;
      ibv_wc wc{};
      if (ibv_poll_cq(cq, 1, &wc) == 1 && wc.wr_id < before) ++late;
      ++polls;
    }
  };
  std::thread poller;
  for (std::uint64_t round = 0; round < 150; ++round) {
    Connected pair([&](ibv_qp_init_attr_ex& attr) {
      if (cq == nullptr) {
        cq = ibv_create_cq(attr.pd->context, 64, nullptr, nullptr, 0);
        poller = std::thread(poll_always);
      }
      attr.send_cq = cq;
    });
    ibv_sge sge = pair.active.sge(0, Connected::kBytes);
    for (int i = 0; i < kSends; ++i) pair.passive.post_recv(0, 0, Connected::kBytes);
    for (int i = 0; i < kSends; ++i) {
      EXPECT_EQ(post_send(pair.active, send_request(sge, round)), 0);
    }
    // Often when the doorbell that was left for later is being rung.
    ::usleep(static_cast<useconds_t>(round * 7 % 2000));
    rdma_destroy_qp(pair.active.id);
    gone = round + 1;
    const std::uint64_t before = polls;
    EXPECT_TRUE(eventually([&] { return polls > before + 20; }));
  }
  ends = true;
  poller.join();
  EXPECT_EQ(late, 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// A thread of the parent polls it all the time, also while it forks.
TEST(VerbsShake, AChildOfForkMayPollAQueueOfItsParent) {
  Opened device;
  ibv_cq* const cq = ibv_create_cq(device.get(), 64, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  std::atomic<bool> ends{false};
  std::thread poller([&] {
    ibv_wc wc{};
    while (!ends) EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
  });
  for (int round = 0; round < 50 && !testing::Test::HasFailure(); ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // it hangs
      ibv_wc wc{};
      static_cast<void>(ibv_poll_cq(cq, 1, &wc));
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
  }
  ends = true;
  poller.join();
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

}  // namespace
}  // namespace weft::abi
