// Who has a connection, and what others may do meanwhile: control, deregistration, callers who go
// away.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#include <weft/placement.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "support/weft_side.h"

namespace weft::test {
namespace {

// --- a holder that does not run ---

// This thread, and those it starts, on one core.
class OneCore {
 public:
  OneCore() {
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    int first = 0;
    while (!CPU_ISSET(first, &before_)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneCore() { EXPECT_EQ(sched_setaffinity(0, sizeof before_, &before_), 0); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

// Octets that take their time: until go() they keep the thread busy that places them.
class Slow final : public PlacementTarget {
 public:
  [[nodiscard]] Placed place(std::uint64_t, std::span<const std::uint8_t>) noexcept override {
    entered_ = true;
    entered_.notify_all();
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!go_ && std::chrono::steady_clock::now() < until) {
    }
    went_in_time_ = go_.load();
    return Placed::kTaken;
  }
  void wait_until_entered() const { entered_.wait(false); }
  void go() { go_ = true; }
  [[nodiscard]] bool went_in_time() const { return went_in_time_; }

 private:
  std::atomic<bool> entered_{false}, go_{false}, went_in_time_{false};
};

long sleeps_of_this_thread() {
  rusage used{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &used), 0);
  return used.ru_nvcsw;
}

// A thread of higher priority preempts the holder for good, unless it sleeps. Posts and polls come
// back without the lane; control sleeps until the holder leaves it.
TEST(Holders, OneThatIsPreemptedByARealTimeThreadIsNotWaitedForByRunning) {
  const OneCore core;
  Host ours, theirs;
  Memory from(ours, 8);
  Endpoint a(ours), b(theirs);
  connect(ours, a, theirs, b);
  const auto slow = std::make_shared<Slow>();
  const auto target = must(register_target(*theirs.pd, slow, 8), "register");
  bool allowed = true;
  std::thread urgent([&] {
    const sched_param high{1};
    allowed = sched_setscheduler(0, SCHED_FIFO, &high) == 0;
    // The background of `theirs` places, and is preempted as soon as it says so.
    slow->wait_until_entered();
    post_recv(*b.qp, 1);
    post(*b.qp, wr_send(2));
    EXPECT_EQ(b.recv_cq->poll(std::span<WorkCompletion>()), 0U);
    slow->go();
    const long before = sleeps_of_this_thread();
    must(b.qp->modify(QpState::kError), "modify");
    EXPECT_TRUE(!allowed || sleeps_of_this_thread() > before) << "it ran until it had the lane";
  });
  post(*a.qp, wr_write(0, target->rkey(), target->iova()), {from.sge()});
  urgent.join();
  EXPECT_TRUE(slow->went_in_time()) << "a post or a poll waited for the holder";
  EXPECT_EQ(take(*b.recv_cq).status, WcStatus::kFlushed);
  if (!allowed) GTEST_SKIP() << "no right to SCHED_FIFO: only that nobody waits was seen";
}

// --- deregistration ---

// Takes nothing until it is told to.
class Closed final : public PlacementTarget {
 public:
  [[nodiscard]] Placed place(std::uint64_t, std::span<const std::uint8_t>) noexcept override {
    asked = true;
    return open ? Placed::kTaken : Placed::kLater;
  }
  std::atomic<bool> asked{false}, open{false};
};

// Nobody else could leave the memory: this thread alone makes progress, in its polls.
TEST(Holders, MemoryIsDeregisteredInTheOnlyThreadThatRunsWhileAWriteIsInTheMiddle) {
  constexpr std::size_t kSize = 16U << 20U;  // more than the socket, or the ring, takes
  Host ours, theirs;
  Endpoint a(ours), b(theirs);
  connect(ours, a, theirs, b);
  Memory from(ours, kSize);
  const auto closed = std::make_shared<Closed>();
  const auto target = must(register_target(*theirs.pd, closed, kSize), "register");
  post(*a.qp, wr_write(1, target->rkey(), target->iova()), {from.sge()});
  // Callers look after both ends: of polls that find nothing there are enough.
  std::array<WorkCompletion, 1> done;
  ASSERT_TRUE(eventually([&] {
    for (int i = 0; i < 10; ++i) (void)(a.send_cq->poll(done) + b.recv_cq->poll(done));
    return closed->asked.load();
  })) << "the Write arrives";
  std::atomic<bool> over{false};
  // Another thread only to see that this one does not hang.
  std::thread watch([&] {
    EXPECT_TRUE(eventually([&] { return over.load(); })) << "deregistration";
    closed->open = true;
  });
  must(from.region->deregister(), "the source");
  must(target->deregister(), "the target");
  over = true;
  watch.join();
  // Octets of memory that is gone can't follow.
  EXPECT_NE(take(*a.send_cq).status, WcStatus::kSuccess);
}

// --- callers who go away ---

// As a program that does nothing else.
void poll_for(CompletionQueue& cq, std::size_t count) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::array<WorkCompletion, 16> done;
  for (std::size_t taken = 0; taken < count; taken += cq.poll(done)) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << taken << " of " << count;
  }
}

// Their lanes are in the list and looked at without epoll; the peers have been told so.
TEST(Holders, HotLanesOfACallerWhoStopsPollingAreServed) {
  constexpr std::size_t kLanes = 12;  // more than a shard attends over TCP
  Host ours, theirs;
  Endpoint first(ours);
  std::vector<std::unique_ptr<Endpoint>> ends, peers;
  Memory into(ours, 8 * kLanes);
  Memory from(theirs, 8);
  for (std::size_t i = 0; i < kLanes; ++i) {
    auto& end = *ends.emplace_back(std::make_unique<Endpoint>(ours));
    auto& peer = *peers.emplace_back(std::make_unique<Endpoint>(theirs));
    end.send_cq = first.send_cq;
    end.recv_cq = first.recv_cq;
    QpOptions q;
    q.send_cq = end.send_cq;
    q.recv_cq = end.recv_cq;
    q.max_send_wr = q.max_recv_wr = 16;
    end.qp = must(ours.pd->create_qp(q), "create a QP");
    connect(ours, end, theirs, peer);
  }
  for (std::uint64_t round = 1; round <= 10; ++round) {
    // All are hot.
    for (int i = 0; i < 20; ++i) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        post_recv(*ends[lane]->qp, lane);
        post(*peers[lane]->qp, wr_send(lane, SendFlags::kNone));
      }
      poll_for(*first.recv_cq, kLanes);
    }
    // So many that callers look after the shard, too few for the lanes to cool down.
    std::array<WorkCompletion, 1> none;
    for (int i = 0; i < 50; ++i) EXPECT_EQ(first.recv_cq->poll(none), 0U);
    // From here on nobody polls, on either side.
    from.store64(0, round);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      post(*peers[lane]->qp, wr_write(lane, into.rkey(), into.to(8 * lane), SendFlags::kNone),
           {from.sge()});
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      ASSERT_TRUE(eventually([&] { return into.load64(8 * lane) == round; }))
          << "lane " << lane << ", round " << round;
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      post_recv(*ends[lane]->qp, round);
      post(*peers[lane]->qp, wr_send(round));  // with a completion: the queue is free again
    }
    poll_for(*first.recv_cq, kLanes);
    for (auto& peer : peers) take_success(*peer->send_cq, round);
  }
}

}  // namespace
}  // namespace weft::test
