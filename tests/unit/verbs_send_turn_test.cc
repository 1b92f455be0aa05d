// How much one call sends on one connection, when the peer takes everything at once: other
// connections of the thread wait meanwhile.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "io/transport.h"
#include "progress/lane.h"
#include "verbs/connection.h"
#include "verbs/qp.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::size_t kWrites = 64;
constexpr std::size_t kAllBytes = kWrites * kMiB;
// A turn ends behind the batch that uses up its share, and a batch is 1 MiB at most. A poll may
// make several turns: for a doorbell, for a lane with a rest, for an event.
constexpr std::uint64_t kOneTurn = progress::Lane::kSentPerTurnAlone + kMiB;
constexpr std::uint64_t kOneTurnBesideOthers = progress::Lane::kSentPerTurn + kMiB;
constexpr std::uint64_t kOnePoll = 5 * kOneTurn;

struct Taken {
  const std::thread::id watched = std::this_thread::get_id();
  std::atomic<std::uint64_t> all{0};
  std::atomic<std::uint64_t> by_watched{0};
};

// A peer that takes whatever is sent and says nothing, until its FIN.
class Bottomless final : public io::Transport {
 public:
  explicit Bottomless(std::shared_ptr<Taken> taken)
      : taken_(std::move(taken)), fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Bottomless() override { ::close(fd_); }
  Bottomless(const Bottomless&) = delete;
  Bottomless& operator=(const Bottomless&) = delete;

  [[nodiscard]] std::ptrdiff_t send(std::span<const Slice> slices) override {
    std::size_t bytes = 0;
    for (const Slice& slice : slices) bytes += slice.size;
    taken_->all += bytes;
    if (std::this_thread::get_id() == taken_->watched) taken_->by_watched += bytes;
    return static_cast<std::ptrdiff_t>(bytes);
  }
  [[nodiscard]] std::ptrdiff_t receive(std::span<const Slice>) override {
    return fin_ ? 0 : -EAGAIN;
  }
  [[nodiscard]] int fd() const noexcept override { return fd_; }
  [[nodiscard]] std::uint32_t events(bool blocked) const noexcept override {
    return EPOLLIN | EPOLLET | (blocked ? EPOLLOUT : 0U);
  }
  void shutdown_send() noexcept override {
    fin_ = true;
    eventfd_write(fd_, 1);
  }
  void close(bool) noexcept override {}
  [[nodiscard]] io::PeerLiveness liveness() const override { return {}; }
  [[nodiscard]] std::uint64_t unacknowledged() const override { return 0; }
  [[nodiscard]] const char* path() const noexcept override { return "tcp"; }

 private:
  const std::shared_ptr<Taken> taken_;
  const int fd_;
  bool fin_ = false;
};

class SendTurn : public ::testing::Test {
 protected:
  SendTurn()
      : region(*host.pd->register_memory(memory.data(), memory.size(), Access::kNone)),
        connection(
            std::dynamic_pointer_cast<ConnectionImpl>(*host.device->create_connection(channel))) {
    connect(*set.qp, connection);
  }
  void connect(QueuePair& which, std::shared_ptr<ConnectionImpl> by) {
    auto& impl = static_cast<QueuePairImpl&>(which);
    proto::StreamParams params;
    params.initiator = params.both_ready = true;
    params.crc = false;
    params.max_ulpdu = 60000;
    EXPECT_TRUE(impl.modify(QpState::kInit));
    EXPECT_TRUE(impl.attach(std::make_unique<Bottomless>(taken), params, std::move(by)));
  }

  // One doorbell for all of them.
  void post_all() {
    const Sge sge{reinterpret_cast<std::uintptr_t>(memory.data()), kMiB, region->lkey()};
    std::array<SendWr, kWrites> wrs;
    for (std::size_t i = 0; i < kWrites; ++i) {
      wrs[i].wr_id = i;
      wrs[i].op = SendOp::kWrite;
      wrs[i].flags = i + 1 == kWrites ? SendFlags::kSignaled : SendFlags::kNone;
      wrs[i].rkey = 0x1234;
      wrs[i].sges = std::span(&sge, 1);
    }
    EXPECT_EQ(set.qp->post_send(wrs).count, kWrites);
  }
  // What this thread has sent since the last call.
  std::uint64_t sent_here() { return taken->by_watched.exchange(0); }

  Host host;
  QpSet set{host};
  const std::shared_ptr<Taken> taken = std::make_shared<Taken>();
  Bytes memory = Bytes(kMiB);
  std::shared_ptr<MemoryRegion> region;
  std::shared_ptr<EventChannel> channel = new_channel();
  std::shared_ptr<ConnectionImpl> connection;
};

TEST_F(SendTurn, APostSendsAShareAndTheBackgroundTheRest) {
  post_all();
  EXPECT_LE(sent_here(), kOneTurn);
  EXPECT_TRUE(eventually([&] { return taken->all.load() > kAllBytes; })) << taken->all.load();
  EXPECT_EQ(sent_here(), 0U);
}

TEST_F(SendTurn, APollSendsAShareAtATimeAndThenTheRequestsAreComplete) {
  std::array<WorkCompletion, 4> done;
  for (int i = 0; i < 100; ++i) (void)set.cq->poll(done);  // this thread makes progress now
  (void)sent_here();
  post_all();
  EXPECT_LE(sent_here(), kOneTurn);
  EXPECT_TRUE(eventually([&] {
    const std::size_t count = set.cq->poll(done);
    EXPECT_LE(sent_here(), kOnePoll);
    return count == 1;
  }));
  EXPECT_EQ(done[0].wr_id, kWrites - 1);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_GT(taken->all.load(), kAllBytes);
}

TEST_F(SendTurn, RequestsPostedBehindARestKeepTheirOrderAndComplete) {
  post_all();
  post_all();
  EXPECT_LE(sent_here(), 2 * kOneTurn);
  std::array<WorkCompletion, 4> done;
  std::size_t count = 0;
  EXPECT_TRUE(eventually([&] {
    count += set.cq->poll(done);
    return count == 2;
  }));
  EXPECT_GT(taken->all.load(), 2 * kAllBytes);
}

TEST_F(SendTurn, BesideOtherConnectionsTheShareIsSmaller) {
  QpOptions options;
  options.send_cq = options.recv_cq = set.cq;
  const auto other = std::move(*host.pd->create_qp(options));
  connect(*other,
          std::dynamic_pointer_cast<ConnectionImpl>(*host.device->create_connection(channel)));
  post_all();
  EXPECT_LE(sent_here(), kOneTurnBesideOthers);
  EXPECT_TRUE(eventually([&] { return taken->all.load() > kAllBytes; })) << taken->all.load();
}

TEST_F(SendTurn, ADisconnectSendsMoreButNotWithoutEnd) {
  post_all();
  (void)sent_here();
  static_cast<QueuePairImpl&>(*set.qp).disconnect();
  EXPECT_LE(sent_here(), progress::Lane::kSentAtEnd + 2 * kOneTurn);
}

}  // namespace
}  // namespace weft::verbs::test
