// How many system calls an ordinary verbs program makes, all threads of its process together:
// counted by a parent that follows it. One of the two ends is in each of two processes.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>

#include "abi_support.h"
#include "support/call_counts.h"

namespace weft::abi {
namespace {

using test::CallCounter;
using test::Calls;
using test::describe;
using test::mark_calls;

constexpr std::size_t kActive = 0;
constexpr std::size_t kPassive = 1;

// The memory by which the two processes know of each other.
class Shared {
 public:
  Shared() {
    void* const at =
        mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    words_ = new (at) Words;
  }
  ~Shared() { munmap(words_, sizeof(Words)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  void listens_at(std::uint16_t port) { words_->port = port; }
  [[nodiscard]] std::uint16_t port() const {
    EXPECT_TRUE(eventually([&] { return words_->port != 0; }));
    return words_->port;
  }
  void join(std::size_t end) { words_->processes[end] = getpid(); }
  // Until the first thread of the other end sleeps.
  void wait_until_asleep(std::size_t end) const {
    EXPECT_TRUE(eventually([&] {
      const std::string name = "/proc/" + std::to_string(words_->processes[end]) + "/stat";
      std::ifstream text(name);
      std::string word;
      for (int i = 0; i < 3; ++i) text >> word;
      return word == "S";
    }));
  }
  void leave(std::size_t end) { words_->over[end] = true; }
  void wait_until_over(std::size_t end) const {
    EXPECT_TRUE(eventually([&] { return words_->over[end].load(); }));
  }

 private:
  struct Words {
    std::atomic<std::uint16_t> port{0};
    std::atomic<pid_t> processes[2]{};
    std::atomic<bool> over[2]{};
  };
  Words* words_ = nullptr;
};

// One whole set-up of a passive end.
struct Passive {
  explicit Passive(const Listening& listening, std::uint32_t depth = 16, ibv_cq* cq = nullptr) {
    NextEvent request(listening.channel.get());
    EXPECT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    id = request.id();
    request.ack();
    ibv_qp_init_attr attr = rc_attributes(cq, depth);
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
    rdma_conn_param params{};
    EXPECT_EQ(rdma_accept(id, &params), 0);
    EXPECT_EQ(NextEvent(listening.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  }
  ~Passive() {
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
  Passive(const Passive&) = delete;
  Passive& operator=(const Passive&) = delete;
  rdma_cm_id* id = nullptr;
};

// An interval of which one in twenty has no more: when threads run, under load above all, changes
// how often they are woken, and what they find then.
Calls usual(std::vector<Calls> intervals) {
  if (intervals.empty()) return {};
  std::ranges::sort(intervals, {}, &Calls::size);
  return intervals[intervals.size() / 20];
}

// --- a round trip ---

constexpr std::uint32_t kRounds = 100;

void post_receive(rdma_cm_id* id) {
  ibv_recv_wr wr{};  // of an empty message
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(id->qp, &wr, &bad), 0);
}

void send_nothing(rdma_cm_id* id) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(id->qp, &wr, &bad), 0);
}

// As the manual page of ibv_get_cq_event has it: arm, poll once more, sleep.
void sleep_for_one(rdma_cm_id* id) {
  ibv_wc wc{};
  while (ibv_req_notify_cq(id->recv_cq, 0) == 0 && ibv_poll_cq(id->recv_cq, 1, &wc) == 0) {
    ibv_cq* told = nullptr;
    void* context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(id->recv_cq_channel, &told, &context), 0);
    ibv_ack_cq_events(told, 1);
  }
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  post_receive(id);
}

// Counts what is between one message and its answer, all of which comes to sleepers.
void play(rdma_cm_id* id, Shared& shared, std::size_t end) {
  shared.join(end);
  if (end == kPassive) sleep_for_one(id);
  for (std::uint32_t round = end == kPassive ? 1 : 0; round < kRounds; ++round) {
    shared.wait_until_asleep(1 - end);
    mark_calls();
    send_nothing(id);
    sleep_for_one(id);
    mark_calls();
  }
  if (end == kPassive) send_nothing(id);
  shared.leave(end);
  shared.wait_until_over(1 - end);
}

void play_active(Shared& shared) {
  Calling calling(shared.port());
  calling.make_qp(2 * kRounds);
  post_receive(calling.id);
  rdma_conn_param params{};
  EXPECT_EQ(rdma_connect(calling.id, &params), 0);
  EXPECT_EQ(NextEvent(calling.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  play(calling.id, shared, kActive);
}

void play_passive(Shared& shared) {
  const Listening listening;
  shared.listens_at(listening.port);
  const Passive passive(listening, 2 * kRounds);
  post_receive(passive.id);
  play(passive.id, shared, kPassive);
}

struct Path {
  const char* name;
  std::size_t most;
};
class CallsOfASleepingRoundTrip : public testing::TestWithParam<Path> {};

// By TCP: sleep, epoll, receive, send. By a ring: sleep, epoll, empty our bell, look whether TCP
// has ended, ring the peer's.
TEST_P(CallsOfASleepingRoundTrip, AreFewOfEachEnd) {
  // At once: else a wait looks for a moment, as often as it can.
  ASSERT_EQ(setenv("WEFT_SPIN", "0", 1), 0);
  ASSERT_EQ(setenv("WEFT_PATH", GetParam().name, 1), 0);
  Shared shared;
  CallCounter counter({[&] { play_active(shared); }, [&] { play_passive(shared); }});
  if (!counter.follow()) GTEST_SKIP() << "no right to trace a process";
  ASSERT_FALSE(counter.failed());
  for (const std::size_t end : {kActive, kPassive}) {
    const Calls calls = usual(counter.between_marks(end));
    EXPECT_GE(calls.size(), 2U) << "nothing is counted: " << describe(calls);
    EXPECT_LE(calls.size(), GetParam().most)
        << "of the end that " << (end == kActive ? "begins: " : "answers: ") << describe(calls);
  }
}

INSTANTIATE_TEST_SUITE_P(By, CallsOfASleepingRoundTrip,
                         testing::Values(Path{"tcp", 4}, Path{"ring", 5}),
                         [](const auto& of) { return std::string(of.param.name); });

// --- a set-up ---

constexpr std::uint32_t kConnections = 16;

// From rdma_connect to ESTABLISHED.
void connect_often(Shared& shared) {
  const std::uint16_t port = shared.port();
  shared.join(kActive);
  for (std::uint32_t i = 0; i < kConnections; ++i) {
    Calling calling(port);
    calling.make_qp();
    shared.wait_until_asleep(kPassive);
    mark_calls();
    rdma_conn_param params{};
    EXPECT_EQ(rdma_connect(calling.id, &params), 0);
    EXPECT_EQ(NextEvent(calling.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
    mark_calls();
  }
  shared.leave(kActive);
}

// From the request to ESTABLISHED, with a queue pair on a completion queue that is there.
void accept_often(Shared& shared) {
  const Listening listening;
  const Opened device;
  ibv_cq* const cq = ibv_create_cq(device.get(), 64, nullptr, nullptr, 0);
  shared.listens_at(listening.port);
  shared.join(kPassive);
  for (std::uint32_t i = 0; i < kConnections; ++i) {
    mark_calls();
    const Passive passive(listening, 16, cq);
    mark_calls();
    EXPECT_EQ(NextEvent(listening.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  }
  shared.wait_until_over(kActive);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// Locks are left out: how often one is taken depends on when threads run, which is different here.
TEST(CallsOfASetUp, AreTwentyFiveOfEachEnd) {
  ASSERT_EQ(setenv("WEFT_PATH", "tcp", 1), 0);
  // Else the background looks, once a millisecond, whether a core is idle.
  ASSERT_EQ(setenv("WEFT_PASSIVE_SPIN", "0", 1), 0);
  Shared shared;
  CallCounter counter({[&] { connect_often(shared); }, [&] { accept_often(shared); }});
  if (!counter.follow()) GTEST_SKIP() << "no right to trace a process";
  ASSERT_FALSE(counter.failed());
  for (const std::size_t end : {kActive, kPassive}) {
    std::vector<Calls> all = counter.between_marks(end);
    for (Calls& one : all) std::erase(one, SYS_futex);
    const Calls calls = usual(all);
    EXPECT_GE(calls.size(), 10U) << "nothing is counted: " << describe(calls);
    EXPECT_LE(calls.size(), 25U) << "of the " << (end == kActive ? "active" : "passive")
                                 << " end: " << describe(calls);
  }
}

}  // namespace
}  // namespace weft::abi
