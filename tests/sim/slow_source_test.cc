// Sends, Writes and Reads whose octets come from methods that do not always have them: whatever the
// byte stream does, what arrives is what the method would have given at once.
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

constexpr std::size_t kRange = 200'000;
constexpr std::uint64_t kBase = 0x1'0000'0000;
constexpr int kRounds = 12;

std::uint8_t octet_at(std::uint64_t offset) {
  return static_cast<std::uint8_t>(offset * 7 + offset / 251);
}

// Says "later" now and then.
class SlowSource {
 public:
  SlowSource(Endpoint& owner, Rng& rng) : rng_(rng) {
    method_.context = this;
    method_.get = [](void* self, std::uint64_t to, std::uint8_t* octets, std::size_t count) {
      return static_cast<SlowSource*>(self)->get(to, {octets, count});
    };
    stag = owner.add_region(reinterpret_cast<std::uint8_t*>(&method_), kRange,
                            Access::kRemoteRead | proto::kByMethod | proto::kGives, kBase);
  }
  SlowSource(const SlowSource&) = delete;
  SlowSource& operator=(const SlowSource&) = delete;

  Stag stag;
  std::uint64_t delays = 0;
  bool stands_still = false;
  bool refuses = false;

 private:
  int get(std::uint64_t to, std::span<std::uint8_t> octets) {
    EXPECT_TRUE(to >= kBase && to - kBase <= kRange && octets.size() <= kRange - (to - kBase));
    std::fill(octets.begin(), octets.end(), std::uint8_t{0xbd});
    if (refuses) return 1;
    if (stands_still || rng_.one_in(3)) {
      ++delays;
      return proto::kStoreLater;
    }
    for (std::size_t i = 0; i < octets.size(); ++i) octets[i] = octet_at(to - kBase + i);
    return 0;
  }
  Rng& rng_;
  MemoryMethod method_{};
};

SimConfig config_of(std::uint64_t seed) {
  SimConfig c = busy_config(seed, seed * 7331 + 11);
  c.endpoint.arena_bytes = 4U << 20U;
  return c;
}

// The client writes and sends from its source; the server reads from it.
class Giving {
 public:
  explicit Giving(std::uint64_t seed) : net(config_of(seed)) {
    EXPECT_TRUE(net.establish());
    source.emplace(net.client(), net.rng());
    mine_ = net.client().take(1000);
    std::memset(mine_, 0x5a, 1000);
  }
  void post_round() {
    Rng& rng = net.rng();
    const std::size_t at = rng.size(0, kRange - 1);
    const std::size_t count = rng.size(1, std::min<std::size_t>(kRange - at, 20000));
    std::uint8_t* const written = expect(at, count, true);
    proto::SendWqe* wqe = net.client().new_send(SendOp::kWrite, SendFlags::kSignaled, ++id_);
    ASSERT_NE(wqe, nullptr);
    add(*wqe, at, count);
    net.client().add_sge(*wqe, net.client().whole(), mine_, 1000);
    wqe->remote_stag = net.server().whole();
    wqe->remote_to = reinterpret_cast<std::uintptr_t>(written);
    net.client().commit_send();

    const std::size_t small = rng.size(1, 2000);
    net.server().post_recv(id_, expect(at / 2, small, false), 2000);
    wqe = net.client().new_send(SendOp::kSend, SendFlags::kSignaled, ++id_);
    ASSERT_NE(wqe, nullptr);
    add(*wqe, at / 2, small);
    net.client().commit_send();

    net.server().post_send(SendOp::kRead, SendFlags::kSignaled, ++id_, expect(at, count, false),
                           static_cast<std::uint32_t>(count), source->stag, kBase + at);
  }
  void check() const {
    for (const Expected& e : expected_) {
      for (std::size_t i = 0; i < e.count; ++i) {
        ASSERT_EQ(e.at[i], octet_at(e.offset + i)) << "octet " << i << " of " << e.count;
      }
      if (!e.and_mine) continue;
      for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(e.at[e.count + i], 0x5a);
    }
  }
  void end() {
    for (int i = 0; i < 2; ++i) net.side(i).stream().close();
    EXPECT_TRUE(net.run_until_idle());
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(net.side(i).down.has_value());
      net.side(i).stream().flush_posted();
      net.side(i).flush_receives();
    }
  }

  SimPair net;
  std::optional<SlowSource> source;

 private:
  struct Expected {
    const std::uint8_t* at;
    std::size_t offset, count;
    bool and_mine;
  };
  std::uint8_t* expect(std::size_t offset, std::size_t count, bool and_mine) {
    std::uint8_t* const at = net.server().take(std::max<std::size_t>(count, 2000) + 1000);
    expected_.push_back({at, offset, count, and_mine});
    return at;
  }
  void add(proto::SendWqe& wqe, std::size_t offset, std::size_t count) {
    net.client().add_sge(wqe, source->stag, reinterpret_cast<const void*>(kBase + offset),
                         static_cast<std::uint32_t>(count));
  }
  std::vector<Expected> expected_;
  std::uint8_t* mine_ = nullptr;
  std::uint64_t id_ = 0;
};

TEST(SlowSources, EveryOctetArrivesAsItIsGiven) {
  std::uint64_t delays = 0;
  for_each_seed(12, [&](std::uint64_t seed) {
    Giving run(seed);
    for (int i = 0; i < kRounds; ++i) run.post_round();
    EXPECT_TRUE(run.net.run_until_idle());
    EXPECT_EQ(run.net.client().sends.size(), 2U * kRounds);
    EXPECT_EQ(run.net.server().sends.size(), 1U * kRounds);
    for (int i = 0; i < 2; ++i) {
      for (const auto& done : run.net.side(i).sends) EXPECT_EQ(done.status, WcStatus::kSuccess);
    }
    run.check();
    delays += run.source->delays;
    run.end();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run.net.side(i).down->how, StreamEnd::kOrderly);
  });
  EXPECT_GT(delays, 0U);
}

// A run whose source has nothing more to give.
struct Stuck : Giving {
  explicit Stuck(std::uint64_t seed) : Giving(seed) {
    source->stands_still = true;
    post_round();
    // It is asked for ever, so this is never idle.
    EXPECT_FALSE(net.run_until_idle({}, 100000));
    EXPECT_GT(source->delays, 1U);
    EXPECT_TRUE(net.client().sends.empty());
  }
  void ends_with_each_request_once() {
    EXPECT_TRUE(net.run_until_idle());
    ASSERT_TRUE(net.client().down.has_value());
    end();
    EXPECT_EQ(net.client().sends.size(), 2U);
    EXPECT_EQ(net.server().sends.size(), 1U);
    for (const auto& done : net.client().sends) EXPECT_NE(done.status, WcStatus::kSuccess);
  }
};

TEST(SlowSources, MayBeRevokedWhileTheyWait) {
  for_each_seed(8, [](std::uint64_t seed) {
    Stuck run(seed);
    ASSERT_TRUE(run.net.client().table().invalidate(run.source->stag));
    const std::uint64_t before = run.source->delays;
    run.ends_with_each_request_once();
    EXPECT_EQ(run.source->delays, before);
  });
}

TEST(SlowSources, MayRefuseInTheEnd) {
  for_each_seed(8, [](std::uint64_t seed) {
    Stuck run(seed);
    run.source->refuses = true;
    run.ends_with_each_request_once();
  });
}

TEST(SlowSources, GoOnAfterAPause) {
  for_each_seed(8, [](std::uint64_t seed) {
    Stuck run(seed);
    run.source->stands_still = false;
    EXPECT_TRUE(run.net.run_until_idle());
    EXPECT_EQ(run.net.client().sends.size(), 2U);
    run.check();
    run.end();
  });
}

TEST(SlowSources, DoNotKeepAConnectionThatIsLost) {
  for_each_seed(8, [](std::uint64_t seed) {
    Stuck run(seed);
    run.net.server().stream().transport_lost(false);
    run.net.client().stream().transport_lost(false);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(run.net.side(i).down.has_value());
      run.net.side(i).stream().flush_posted();
      run.net.side(i).flush_receives();
    }
    EXPECT_EQ(run.net.client().sends.size(), 2U);
  });
}

}  // namespace
}  // namespace weft::testing
