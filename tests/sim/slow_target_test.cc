// Writes to targets that are not memory and do not always take what comes: a naive copy of the
// range says what must be there in the end, whatever the byte stream does.
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
                            Access::kRemoteWrite | proto::kByMethod, kBase);
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
