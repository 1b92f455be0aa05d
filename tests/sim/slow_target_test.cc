// Writes, Read Responses and Sends to targets that are not memory and do not always take what
// comes: a naive copy of the range says what must be there in the end, whatever the byte stream
// does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "seeds.h"
#include "sim_pair.h"

namespace weft::testing {
namespace {

using proto::MemoryMethod;
using proto::StreamEnd;

constexpr std::size_t kRange = 300'000;
constexpr std::uint64_t kBase = 0x1'0000'0000;

// Says "later" now and then, and refuses on demand.
class SlowTarget {
 public:
  SlowTarget(Endpoint& owner, Rng& rng) : rng_(rng) {
    method_.context = this;
    method_.may_wait = true;
    method_.set = [](void* self, std::uint64_t to, const std::uint8_t* octets, std::size_t count) {
      return static_cast<SlowTarget*>(self)->set(to, octets, count);
    };
    stag = owner.add_region(reinterpret_cast<std::uint8_t*>(&method_), kRange,
                            Access::kLocalWrite | Access::kRemoteWrite | proto::kByMethod, kBase);
  }
  SlowTarget(const SlowTarget&) = delete;
  SlowTarget& operator=(const SlowTarget&) = delete;

  Stag stag;
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(kRange, 0);
  std::uint64_t taken = 0;   // octets
  std::uint64_t delays = 0;  // answers of "later"
  bool stands_still = false;
  bool refuses = false;

 private:
  int set(std::uint64_t to, const std::uint8_t* octets, std::size_t count) {
    EXPECT_TRUE(to >= kBase && to - kBase <= kRange && count <= kRange - (to - kBase));
    if (refuses) return 1;
    if (stands_still || rng_.one_in(3)) {
      ++delays;
      return proto::kStoreLater;
    }
    std::memcpy(memory.data() + (to - kBase), octets, count);
    taken += count;
    return 0;
  }
  Rng& rng_;
  MemoryMethod method_{};
};

SimConfig config_of(std::uint64_t seed) {
  SimConfig c = busy_config(seed, seed * 31337 + 5);
  c.endpoint.arena_bytes = 2U << 20U;
  return c;
}

// A client that writes to the target and to memory, and says each time how far it is.
class Writer {
 public:
  explicit Writer(SimPair& net) : target(net.server(), net.rng()), want(kRange, 0), net_(net) {
    source_ = net.client().take(kRange);
    for (std::size_t i = 0; i < kRange; ++i)
      source_[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
    plain_ = net.server().take(1000);
    note_ = net.server().take(64);
  }
  void post(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const std::size_t at = net_.rng().size(0, kRange - 1);
      const std::size_t count = net_.rng().size(1, std::min<std::size_t>(kRange - at, 20000));
      const std::size_t from = net_.rng().size(0, kRange - count);
      send(SendOp::kWrite, source_ + from, count, target.stag, kBase + at);
      std::memcpy(want.data() + at, source_ + from, count);
      posted_ += count;
      send(SendOp::kWrite, source_ + i, 1000, net_.server().whole(),
           reinterpret_cast<std::uintptr_t>(plain_));
      net_.server().post_recv(posted_, note_, 64);
      send(SendOp::kSend, source_, 8, {}, 0);
    }
  }
  // What a receive says was written before it has been taken when it completes.
  void check_delivered() {
    const auto& recvs = net_.server().recvs;
    for (; seen_ < recvs.size(); ++seen_) EXPECT_GE(target.taken, recvs[seen_].wr_id);
  }

  SlowTarget target;
  std::vector<std::uint8_t> want;

 private:
  void send(SendOp op, const std::uint8_t* at, std::size_t count, Stag stag, std::uint64_t to) {
    net_.client().post_send(op, SendFlags::kSignaled, ++id_, at, static_cast<std::uint32_t>(count),
                            stag, to);
  }
  SimPair& net_;
  std::uint8_t* source_ = nullptr;
  std::uint8_t* plain_ = nullptr;
  std::uint8_t* note_ = nullptr;
  std::uint64_t posted_ = 0, id_ = 0;
  std::size_t seen_ = 0;
};

void end(SimPair& net) {
  for (int i = 0; i < 2; ++i) net.side(i).stream().close();
  EXPECT_TRUE(net.run_until_idle());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(net.side(i).down.has_value());
    net.side(i).stream().flush_posted();
    net.side(i).flush_receives();
  }
}

TEST(SlowTargets, EveryOctetIsTakenOnceAndInItsTurn) {
  std::uint64_t delays = 0;
  for_each_seed(24, [&](std::uint64_t seed) {
    SimPair net(config_of(seed));
    ASSERT_TRUE(net.establish());
    Writer writer(net);
    writer.post(15);
    EXPECT_TRUE(net.run_until_idle([&] { writer.check_delivered(); }));
    EXPECT_EQ(writer.target.memory, writer.want);
    EXPECT_EQ(net.server().recvs.size(), 15U);
    EXPECT_EQ(net.client().sends.size(), 45U);
    for (const auto& done : net.client().sends) EXPECT_EQ(done.status, WcStatus::kSuccess);
    delays += writer.target.delays;
    end(net);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(net.side(i).down->how, StreamEnd::kOrderly);
  });
  EXPECT_GT(delays, 0U);
}

// A run whose target has stopped taking anything, in the middle of a Write.
struct Stuck {
  explicit Stuck(std::uint64_t seed) : net(config_of(seed)) {
    EXPECT_TRUE(net.establish());
    writer.emplace(net);
    writer->target.stands_still = true;
    writer->post(3);
    // It asks for ever, so it is never idle.
    EXPECT_FALSE(net.run_until_idle({}, 100000));
    EXPECT_TRUE(net.server().stream().awaits_receive());
    EXPECT_GT(writer->target.delays, 1U);
    EXPECT_EQ(net.server().recvs.size(), 0U);
  }
  SimPair net;
  std::optional<Writer> writer;
};

// The server reads into one target, and receives into another and memory.
class Taker {
 public:
  explicit Taker(std::uint64_t seed) : net(config_of(seed)) {
    EXPECT_TRUE(net.establish());
    reads.emplace(net.server(), net.rng());
    receives.emplace(net.server(), net.rng());
    source_ = net.client().take(kRange);
    for (std::size_t i = 0; i < kRange; ++i) {
      source_[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
    }
    memory_ = net.server().take(kMemory);
  }
  void post_round() {
    ++id_;
    Rng& rng = net.rng();
    const Part read = part(20000);
    proto::SendWqe* wqe = net.server().new_send(SendOp::kRead, SendFlags::kSignaled, id_);
    ASSERT_NE(wqe, nullptr);
    const std::size_t first = rng.size(0, read.count);  // in two pieces
    add(*wqe, read.at, first);
    add(*wqe, read.at + first, read.count - first);
    wqe->remote_stag = net.client().whole();
    wqe->remote_to = reinterpret_cast<std::uintptr_t>(source_ + read.from);
    net.server().commit_send();
    std::memcpy(want_read.data() + read.at, source_ + read.from, read.count);

    const Part sent = part(20000);
    const auto in_memory = static_cast<std::uint32_t>(std::min(sent.count, rng.size(0, kMemory)));
    const Sge sges[] = {
        {reinterpret_cast<std::uintptr_t>(memory_), in_memory, net.server().whole().value},
        {kBase + sent.at, static_cast<std::uint32_t>(sent.count), receives->stag.value}};
    net.server().post_recv(id_, sges);
    net.client().post_send(SendOp::kSend, SendFlags::kSignaled, id_, source_ + sent.from,
                           static_cast<std::uint32_t>(sent.count), {}, 0);
    std::memcpy(want_received.data() + sent.at, source_ + sent.from + in_memory,
                sent.count - in_memory);
    bytes_read_ += read.count;
    bytes_received_ += sent.count - in_memory;
    read_by_.push_back(bytes_read_);
    received_by_.push_back(bytes_received_);
  }
  // Nothing completes before its target has taken it.
  void check_delivered() {
    const std::size_t read = net.server().sends.size();
    const std::size_t received = net.server().recvs.size();
    EXPECT_GE(reads->taken, read == 0 ? 0 : read_by_[read - 1]);
    EXPECT_GE(receives->taken, received == 0 ? 0 : received_by_[received - 1]);
  }

  SimPair net;
  std::optional<SlowTarget> reads, receives;
  std::vector<std::uint8_t> want_read = std::vector<std::uint8_t>(kRange, 0);
  std::vector<std::uint8_t> want_received = want_read;

 private:
  struct Part {
    std::size_t at, count, from;
  };
  static constexpr std::size_t kMemory = 700;
  Part part(std::size_t most) {
    Rng& rng = net.rng();
    const std::size_t at = rng.size(0, kRange - 1);
    const std::size_t count = rng.size(1, std::min<std::size_t>(kRange - at, most));
    return {at, count, rng.size(0, kRange - count)};
  }
  void add(proto::SendWqe& wqe, std::size_t at, std::size_t count) {
    net.server().add_sge(wqe, reads->stag, reinterpret_cast<const void*>(kBase + at),
                         static_cast<std::uint32_t>(count));
  }
  std::uint8_t* source_ = nullptr;
  std::uint8_t* memory_ = nullptr;
  std::uint64_t id_ = 0, bytes_read_ = 0, bytes_received_ = 0;
  std::vector<std::uint64_t> read_by_, received_by_;
};

TEST(SlowTargets, TakeReadResponsesAndSendsInTheirTurn) {
  std::uint64_t delays = 0;
  for_each_seed(24, [&](std::uint64_t seed) {
    Taker run(seed);
    for (int i = 0; i < 12; ++i) run.post_round();
    EXPECT_TRUE(run.net.run_until_idle([&] { run.check_delivered(); }));
    EXPECT_EQ(run.reads->memory, run.want_read);
    EXPECT_EQ(run.receives->memory, run.want_received);
    EXPECT_EQ(run.net.server().sends.size(), 12U);
    EXPECT_EQ(run.net.server().recvs.size(), 12U);
    for (const auto& done : run.net.server().sends) EXPECT_EQ(done.status, WcStatus::kSuccess);
    for (const auto& done : run.net.server().recvs) EXPECT_EQ(done.status, WcStatus::kSuccess);
    delays += run.reads->delays + run.receives->delays;
    end(run.net);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run.net.side(i).down->how, StreamEnd::kOrderly);
  });
  EXPECT_GT(delays, 0U);
}

// Each request and receive comes back once, however the wait for its target ends.
TEST(SlowTargets, OfReadsAndReceivesMayBeRevokedRefuseOrBeLeft) {
  for_each_seed(20, [](std::uint64_t seed) {
    for (int how = 0; how < 4; ++how) {
      Taker run(seed);
      SlowTarget& stuck = seed % 2 == 0 ? *run.reads : *run.receives;
      stuck.stands_still = true;
      for (int i = 0; i < 3; ++i) run.post_round();
      for (int i = 0; i < 40 && stuck.delays < 2; ++i) {
        EXPECT_FALSE(run.net.run_until_idle({}, 50000));
      }
      EXPECT_GT(stuck.delays, 1U);
      switch (how) {
        case 0: ASSERT_TRUE(run.net.server().table().invalidate(stuck.stag)); break;
        case 1: stuck.refuses = true; break;
        case 2:
          run.net.server().stream().transport_lost(false);
          run.net.client().stream().transport_lost(false);
          break;
        default: stuck.stands_still = false; run.net.server().stream().close();
      }
      EXPECT_TRUE(run.net.run_until_idle());
      for (int i = 0; i < 2; ++i) run.net.side(i).stream().close();
      EXPECT_TRUE(run.net.run_until_idle());
      for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(run.net.side(i).down.has_value());
        run.net.side(i).stream().flush_posted();
        run.net.side(i).flush_receives();
      }
      EXPECT_EQ(run.net.server().sends.size(), 3U);
      EXPECT_EQ(run.net.server().recvs.size(), 3U);
      if (how < 2) {
        const auto bad = [](const auto& done) { return done.status == WcStatus::kLocalProtection; };
        EXPECT_EQ(std::ranges::count_if(run.net.server().sends, bad) +
                      std::ranges::count_if(run.net.server().recvs, bad),
                  1)
            << how;
      }
    }
  });
}

TEST(SlowTargets, MayBeRevokedWhileTheyWait) {
  for_each_seed(20, [](std::uint64_t seed) {
    Stuck run(seed);
    ASSERT_TRUE(run.net.server().table().invalidate(run.writer->target.stag));
    const std::uint64_t before = run.writer->target.delays;
    EXPECT_TRUE(run.net.run_until_idle());
    EXPECT_EQ(run.writer->target.delays, before);
    ASSERT_TRUE(run.net.server().down.has_value());
    EXPECT_EQ(run.net.server().down->how, StreamEnd::kTerminated);
    end(run.net);
  });
}

TEST(SlowTargets, MayRefuseInTheEnd) {
  for_each_seed(20, [](std::uint64_t seed) {
    Stuck run(seed);
    run.writer->target.refuses = true;
    EXPECT_TRUE(run.net.run_until_idle());
    ASSERT_TRUE(run.net.server().down.has_value());
    EXPECT_EQ(run.net.server().down->how, StreamEnd::kTerminated);
    end(run.net);
  });
}

TEST(SlowTargets, DoNotKeepAConnectionThatIsLost) {
  for_each_seed(20, [](std::uint64_t seed) {
    Stuck run(seed);
    run.net.server().stream().transport_lost(false);
    run.net.client().stream().transport_lost(false);
    EXPECT_FALSE(run.net.server().stream().awaits_receive());
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(run.net.side(i).down.has_value());
      run.net.side(i).stream().flush_posted();
      run.net.side(i).flush_receives();
    }
  });
}

}  // namespace
}  // namespace weft::testing
