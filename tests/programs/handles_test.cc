// Handles that one thread destroys while another uses them, and what else happens on the way to an
// object: each call does its work on a live object or fails with EINVAL, and nothing is lost.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "abi_support.h"
#include "support/descriptor_limit.h"

namespace weft::abi {
namespace {

constexpr int kRounds = 300;

// Calls `use` until it fails; true when it failed with `error`, and what it counted before that.
template <class Use>
std::thread use_until_gone(std::atomic<bool>& go, Use use) {
  return std::thread([&go, use] {
    while (!go.load()) std::this_thread::yield();
    for (int i = 0; i < 1000 && use(); ++i) {
    }
  });
}

// Two threads: one destroys, the other uses. `make` gives a handle, `use` says whether it was still
// alive, `destroy` gives 0.
template <class Make, class Use, class Destroy>
void race(Make make, Use use, Destroy destroy) {
  for (int round = 0; round < kRounds; ++round) {
    auto* handle = make();
    ASSERT_NE(handle, nullptr);
    std::atomic<bool> go{false};
    std::thread user = use_until_gone(go, [&] { return use(handle); });
    go.store(true);
    EXPECT_EQ(destroy(handle), 0);
    user.join();
    EXPECT_EQ(destroy(handle), EINVAL);
  }
}

class Handles : public testing::Test {
 protected:
  void SetUp() override {
    pd_ = ibv_alloc_pd(device_.get());
    cq_ = ibv_create_cq(device_.get(), 64, nullptr, nullptr, 0);
    ASSERT_NE(pd_, nullptr);
    ASSERT_NE(cq_, nullptr);
  }
  void TearDown() override {
    // With a user left behind by a race these would be busy.
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  }
  Opened device_;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

TEST_F(Handles, AQueuePairThatIsQueriedWhileItIsDestroyed) {
  race(
      [&] {
        ibv_qp_init_attr attr = rc_attributes(cq_);
        return ibv_create_qp(pd_, &attr);
      },
      [](ibv_qp* qp) {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        const int got = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
        EXPECT_TRUE(got == 0 || got == EINVAL);
        return got == 0;
      },
      ibv_destroy_qp);
}

TEST_F(Handles, ARegionThatIsMovedWhileItIsDestroyed) {
  std::vector<char> memory(4096);
  race([&] { return ibv_reg_mr(pd_, memory.data(), memory.size(), kLocalWrite); },
       [&](ibv_mr* mr) {
         return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data(), 64, 0) ==
                0;
       },
       ibv_dereg_mr);
}

TEST_F(Handles, ADomainThatGetsRegionsWhileItIsDestroyed) {
  std::vector<char> memory(4096);
  for (int round = 0; round < kRounds; ++round) {
    ibv_pd* pd = ibv_alloc_pd(device_.get());
    std::atomic<bool> go{false};
    std::thread user = use_until_gone(go, [&] {
      ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(), kLocalWrite);
      if (mr == nullptr) return false;
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
      return true;
    });
    go.store(true);
    int got = EBUSY;
    while (got == EBUSY) got = ibv_dealloc_pd(pd);
    EXPECT_EQ(got, 0);
    user.join();
  }
}

TEST_F(Handles, ACompletionQueueThatGetsQueuePairsWhileItIsDestroyed) {
  for (int round = 0; round < kRounds; ++round) {
    ibv_cq* cq = ibv_create_cq(device_.get(), 16, nullptr, nullptr, 0);
    std::atomic<bool> go{false};
    std::thread user = use_until_gone(go, [&] {
      ibv_qp_init_attr attr = rc_attributes(cq, 4);
      ibv_qp* qp = ibv_create_qp(pd_, &attr);
      if (qp == nullptr) return false;
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
      return true;
    });
    go.store(true);
    int got = EBUSY;
    while (got == EBUSY) got = ibv_destroy_cq(cq);
    EXPECT_EQ(got, 0);
    user.join();
  }
}

TEST_F(Handles, TwoThreadsThatDestroyTheSameSucceedOnce) {
  for (int round = 0; round < kRounds; ++round) {
    ibv_qp_init_attr attr = rc_attributes(cq_, 4);
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    std::atomic<int> successes{0};
    std::atomic<bool> go{false};
    const auto destroy = [&] {
      while (!go.load()) std::this_thread::yield();
      if (ibv_destroy_qp(qp) == 0) ++successes;
    };
    std::thread one(destroy);
    std::thread two(destroy);
    go.store(true);
    one.join();
    two.join();
    EXPECT_EQ(successes.load(), 1);
  }
}

TEST_F(Handles, AnIdThatIsBoundWhileItIsDestroyed) {
  const ChannelPtr channel = make_channel();
  for (int round = 0; round < kRounds; ++round) {
    rdma_cm_id* id = make_id(channel.get());
    std::atomic<bool> go{false};
    std::thread user = use_until_gone(go, [&] {
      auto any = v4("127.0.0.1", 0);
      if (rdma_bind_addr(id, generic(any)) == 0) rdma_listen(id, 1);
      return false;
    });
    go.store(true);
    EXPECT_EQ(rdma_destroy_id(id), 0);
    user.join();
  }
}

TEST_F(Handles, CallsOnAnIdThatIsGoneAreRefused) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  ASSERT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(rdma_listen(id, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_connect(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_disconnect(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(id), -1);
}

// Programs reach these by pointers in the object, past its context.
TEST_F(Handles, AnExtendedCqThatIsDestroyedRefusesToBePolled) {
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  ibv_cq_ex* cq = ibv_create_cq_ex(device_.get(), &init);
  ASSERT_NE(cq, nullptr);
  ASSERT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  ibv_poll_cq_attr none{};
  EXPECT_EQ(ibv_start_poll(cq, &none), EINVAL);
  EXPECT_EQ(ibv_next_poll(cq), EINVAL);
}

TEST_F(Handles, AQueuePairThatIsDestroyedRefusesABatch) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = cq_;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = rc_attributes(cq_).cap;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd_;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ibv_qp* plain = ibv_create_qp_ex(device_.get(), &attr);
  ASSERT_NE(plain, nullptr);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(plain);
  ASSERT_NE(qp, nullptr);
  ASSERT_EQ(ibv_destroy_qp(plain), 0);
  for (int round = 0; round < 2; ++round) {
    ibv_wr_start(qp);
    ibv_wr_send(qp);
    EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  }
}

TEST_F(Handles, DataOfAMessageIsNotSaidToBePlacedInOrder) {
  ibv_qp_init_attr attr = rc_attributes(cq_);
  ibv_qp* qp = ibv_create_qp(pd_, &attr);
  EXPECT_EQ(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(Handles, ANewQueuePairIsInResetAndOneOfRdmaCmInInit) {
  ibv_qp_init_attr attr = rc_attributes(cq_);
  ibv_qp* qp = ibv_create_qp(pd_, &attr);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  const Listening listening;
  Calling calling(listening.port);
  calling.make_qp();
  EXPECT_EQ(calling.id->qp->state, IBV_QPS_INIT);
}

TEST_F(Handles, ARegionThatOnlyChangesItsRightsKeepsItsKeys) {
  std::vector<char> memory(4096);
  ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(), kLocalWrite);
  ASSERT_NE(mr, nullptr);
  const std::uint32_t lkey = mr->lkey;
  const std::uint32_t rkey = mr->rkey;
  constexpr int kMore = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kMore), 0);
  EXPECT_EQ(mr->rkey, rkey);
  EXPECT_EQ(mr->lkey, lkey);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// --- descriptors ---

TEST_F(Handles, WithoutDescriptorsCallsSayEmfile) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  {
    const auto none = test::DescriptorLimit::beyond(0);
    errno = 0;
    EXPECT_EQ(ibv_create_comp_channel(device_.get()), nullptr);
    EXPECT_EQ(errno, EMFILE);
    errno = 0;
    EXPECT_EQ(ibv_open_device(device_.get()->device), nullptr);
    EXPECT_EQ(errno, EMFILE);
    errno = 0;
    EXPECT_EQ(rdma_create_event_channel(), nullptr);
    EXPECT_EQ(errno, EMFILE);
    errno = 0;
    auto any = v4("127.0.0.1", 0);
    EXPECT_EQ(rdma_bind_addr(id, generic(any)), -1);
    EXPECT_EQ(errno, EMFILE);
  }
  auto any = v4("127.0.0.1", 0);
  EXPECT_EQ(rdma_bind_addr(id, generic(any)), 0) << "the id is as it was";
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// The kernel completes the TCP handshake; without a descriptor nobody would answer the MPA Request.
TEST_F(Handles, AClientOfAServerWithoutDescriptorsIsRefused) {
  const Listening listening;
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto peer = v4("127.0.0.1", listening.port);
  {
    const auto none = test::DescriptorLimit::beyond(0);
    // The refusal may come before connect() has returned: then that is the call which says so.
    if (connect(client, generic(peer), sizeof peer) == 0) {
      pollfd one{client, POLLIN, 0};
      ASSERT_EQ(poll(&one, 1, kWaitMs), 1);
      char octet = 0;
      EXPECT_LE(recv(client, &octet, 1, 0), 0);
    } else {
      EXPECT_TRUE(errno == ECONNREFUSED || errno == ECONNRESET || errno == ECONNABORTED) << errno;
    }
  }
  EXPECT_EQ(close(client), 0);
  const Connected pair;  // all is well again
}

// --- asynchronous events ---

// A QP is destroyed at the moment when its event comes. An event that a thread gets names a QP
// whose destruction waits for the acknowledgment; nothing is queued for one that is gone.
TEST(AsyncEvents, NameNoQueuePairThatIsDestroyed) {
  for (int round = 0; round < 30; ++round) {
    std::atomic<bool> stop{false};
    std::atomic<ibv_qp*> destroyed{nullptr};
    ibv_context* context = nullptr;
    {
      Connected pair;
      context = pair.passive.id->verbs;
      const int flags = fcntl(context->async_fd, F_GETFL);
      fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK);
      std::thread reader([&] {
        while (!stop.load()) {
          ibv_async_event event{};
          if (ibv_get_async_event(context, &event) != 0) continue;
          EXPECT_NE(event.element.qp, destroyed.load());
          ibv_ack_async_event(&event);
        }
      });
      violate(pair.active, pair.passive);
      ibv_qp* victim = pair.passive.id->qp;
      rdma_destroy_qp(pair.passive.id);
      destroyed.store(victim);
      stop.store(true);
      reader.join();
      fcntl(context->async_fd, F_SETFL, flags);
    }
    EXPECT_FALSE(readable(context->async_fd, 0));
  }
}

}  // namespace
}  // namespace weft::abi
