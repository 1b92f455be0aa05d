// A shard with one lane, and nothing else: no queue pair, no socket. What comes are RDMA Writes of
// no octets, as many as the test says; a turn receives kReadsPerTurn of them.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>

#include "os/clock.h"
#include "os/fd.h"
#include "progress/lane.h"

namespace weft::progress::test {

inline constexpr std::chrono::seconds kPatience{10};  // for what must happen
inline constexpr int kReadsPerTurn = 16;

template <class Predicate>
bool eventually(Predicate holds) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    const timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

// A thread stops at hold() once; another one waits for that, and lets it go on.
class Meeting {
 public:
  void hold() {
    if (held_.exchange(true)) return;
    EXPECT_TRUE(eventually([this] { return open_.load(); })) << "to be let go";
  }
  [[nodiscard]] bool somebody_is_held() {
    return eventually([this] { return held_.load(); });
  }
  void release() { open_ = true; }

 private:
  std::atomic<bool> held_{false}, open_{false};
};

// What a test has done at a certain place. Set once; other threads may be there already.
class Hook {
 public:
  void set(std::function<void()> work) {
    work_ = std::move(work);
    is_set_ = true;
  }
  void operator()() const {
    if (is_set_) work_();
  }

 private:
  std::function<void()> work_;
  std::atomic<bool> is_set_{false};
};

class FakeHost final : public ProgressHost {
 public:
  FakeHost() : engine(std::move(*io::Engine::create())) {
    config.log = LogLevel::kOff;
    config.passive_spin = std::chrono::nanoseconds(0);
  }
  [[nodiscard]] const Config& settings() const noexcept override { return config; }
  [[nodiscard]] bool usable() const noexcept override { return true; }
  [[nodiscard]] proto::StagTable& stags() noexcept override { return stags_; }
  [[nodiscard]] Rings& rings() noexcept override { return rings_; }
  [[nodiscard]] std::uint64_t ticks_per_us() const noexcept override { return 1000; }
  [[nodiscard]] unsigned cores() const noexcept override { return 2; }
  [[nodiscard]] const os::Cores& machine_cores() const noexcept override { return cores_; }
  void note_up(int) override {}
  void note_without_batch() override {}

  Config config;
  const std::unique_ptr<io::Engine> engine;

 private:
  proto::StagTable stags_{1, [] { return 4U; }, 16};
  Rings rings_;
  os::Cores cores_;
};

class FakeTransport final : public io::Transport {
 public:
  FakeTransport() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  // Any thread: so many messages more, which epoll reports.
  void bring(int messages) {
    unread += messages;
    report();
  }
  void report() const { EXPECT_EQ(eventfd_write(fd_.get(), 1), 0); }

  std::atomic<int> unread{0};
  std::atomic<int> receive_error{0};  // instead of messages
  std::atomic<int> send_error{0};
  std::atomic<int> sends{0};  // calls
  Hook on_receive;            // with the lane held

  [[nodiscard]] std::ptrdiff_t send(std::span<const Slice> slices) override {
    if (send_error != 0) return -send_error;
    ++sends;
    std::size_t bytes = 0;
    for (const Slice& slice : slices) bytes += slice.size;
    return static_cast<std::ptrdiff_t>(bytes);
  }
  // One message at a time, so that a turn ends before all are read.
  [[nodiscard]] std::ptrdiff_t receive(std::span<const Slice> slices) override {
    on_receive();
    if (receive_error != 0) return -receive_error;
    if (unread == 0) return -EAGAIN;
    // Length 14; tagged, last, version 1; RDMAP version 1, Write; STag; offset; no CRC.
    constexpr std::array<std::uint8_t, 20> kWriteOfNothing{0, 14, 0xc1, 0x40};
    EXPECT_GE(slices.front().size, kWriteOfNothing.size());
    std::memcpy(slices.front().data, kWriteOfNothing.data(), kWriteOfNothing.size());
    --unread;
    return kWriteOfNothing.size();
  }
  [[nodiscard]] bool short_read_is_all() const noexcept override { return false; }
  [[nodiscard]] int fd() const noexcept override { return fd_.get(); }
  [[nodiscard]] std::uint32_t events(bool blocked) const noexcept override {
    return EPOLLIN | EPOLLET | (blocked ? EPOLLOUT : 0U);
  }
  void shutdown_send() noexcept override {}
  void close(bool) noexcept override {}
  [[nodiscard]] io::PeerLiveness liveness() const override { return {}; }
  [[nodiscard]] std::uint64_t unacknowledged() const override { return 0; }
  [[nodiscard]] const char* path() const noexcept override { return "tcp"; }

 private:
  const os::Fd fd_;
};

class FakeOwner final : public LaneOwner, public std::enable_shared_from_this<FakeOwner> {
 public:
  FakeOwner(ProgressHost& host, const std::shared_ptr<Shard>& shard) : lane(*this, host, sq) {
    EXPECT_TRUE(sq.allocate(64, proto::kSendTailMin));
    lane.belong_to(shard);
  }
  ~FakeOwner() override { lane.stop(); }
  FakeOwner(const FakeOwner&) = delete;
  FakeOwner& operator=(const FakeOwner&) = delete;

  void open() {
    auto made = std::make_unique<FakeTransport>();
    transport = made.get();
    proto::StreamParams params;
    params.initiator = params.both_ready = true;
    params.crc = false;
    lane.exclusively([&] {
      EXPECT_TRUE(lane.open(std::move(made), nullptr, params, Access::kNone));
      lane.look();
    });
  }
  void abort() {
    lane.exclusively([&] {
      if (lane.live()) lane.stream()->abort();
    });
  }
  // So many posts that the last ones wait for the next pass. More where the thread is kept from
  // running in between, since that ends a stream.
  void post_stream() {
    constexpr int kStreamOfPosts = 12;
    constexpr int kMost = 100 * kStreamOfPosts;
    for (int i = 0; i < kStreamOfPosts || (i < kMost && !lane.post_waits()); ++i) {
      post();
      lane.ring_doorbell();
    }
    EXPECT_TRUE(lane.post_waits());
  }
  // A Write of nothing, without its doorbell.
  void post() {
    proto::SendWqe* const wqe = sq.reserve();
    ASSERT_NE(wqe, nullptr);
    wqe->op = SendOp::kWrite;
    sq.commit();
  }

  Hook on_lane_left;
  proto::SendQueue sq;
  FakeTransport* transport = nullptr;  // while the lane is live
  Lane lane;

  void turn_done() override {}
  void lane_left() override { on_lane_left(); }
  [[nodiscard]] std::shared_ptr<LaneOwner> hold() override { return weak_from_this().lock(); }
  std::uint8_t* acquire_carry(std::size_t size) override { return new std::uint8_t[size]; }
  void release_carry(std::uint8_t* carry, std::size_t) override { delete[] carry; }
  proto::TxBatch* acquire_batch() override { return new proto::TxBatch; }
  void release_batch(proto::TxBatch* batch) override { delete batch; }
  bool take_receive(proto::RecvWqe&) override { return false; }
  void send_done(const proto::SendDone&) override {}
  void recv_done(const proto::RecvDone&) override {}
  WcStatus local_operation(proto::SendWqe&) override { return WcStatus::kLocalQpOperation; }
  proto::Violation remote_invalidate(Stag) override { return proto::Violation::kNone; }
  std::uint64_t execute_atomic(std::uint8_t*, const AtomicRequest&) override { return 0; }
  void raise(AsyncEventType) override {}
  void log_violation(proto::Violation violation, TerminateCode, bool) override {
    ADD_FAILURE() << "a violation: " << static_cast<int>(violation);
  }
  void first_fpdu() override {}
  void stream_down(proto::StreamEnd, TerminateCode, bool) override {}
  Instant now() override { return os::now(); }
};

// A thread is said to sleep on it: so nobody else runs it.
struct Rig {
  Rig() : shard(*Shard::create(host, *host->engine, nullptr)) {
    shard->owner().begin_sleep();
    owner->open();
    EXPECT_FALSE(shard->run(Look::kAll).left);
  }
  ~Rig() {
    if (owner != nullptr) owner->abort();
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  void leave_to_background() const {
    shard->owner().end_sleep();
    shard->owner().give();
  }
  // Somebody who sleeps on the epoll now is woken.
  [[nodiscard]] bool reports() const {
    pollfd wanted{shard->epoll(), POLLIN, 0};
    const auto limit = std::chrono::milliseconds(kPatience);
    return poll(&wanted, 1, static_cast<int>(limit.count())) == 1;
  }

  const std::shared_ptr<FakeHost> host = std::make_shared<FakeHost>();
  const std::shared_ptr<Shard> shard;
  std::shared_ptr<FakeOwner> owner = std::make_shared<FakeOwner>(*host, shard);
};

}  // namespace weft::progress::test
