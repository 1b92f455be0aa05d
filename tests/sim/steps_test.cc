// The steps of requests and messages that a stream tells of (StreamParams::steps).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "seeds.h"
#include "sim_pair.h"

namespace weft::testing {
namespace {

using What = Step::What;

class Steps {
 public:
  explicit Steps(SimConfig config) : net_((config.steps = true, config)) {
    EXPECT_TRUE(net_.establish());
    EXPECT_TRUE(net_.run_until_idle());  // the RTR
    source_ = net_.client().take(kSize);
    target_ = net_.server().take(kSize);
  }
  void write(std::uint32_t size) {
    net_.client().post_send(SendOp::kWrite, SendFlags::kSignaled, next_++, source_, size,
                            net_.server().whole(), reinterpret_cast<std::uintptr_t>(target_));
  }
  void read(std::uint32_t size) {
    net_.client().post_send(SendOp::kRead, SendFlags::kSignaled, next_++, source_, size,
                            net_.server().whole(), reinterpret_cast<std::uintptr_t>(target_));
  }
  void send(std::uint32_t size) {
    net_.server().post_recv(next_, target_, kSize);
    net_.client().post_send(SendOp::kSend, SendFlags::kSignaled, next_++, source_, size);
  }
  void invalidate() {
    Endpoint& me = net_.client();
    proto::SendWqe* const wqe = me.new_send(SendOp::kLocalInvalidate, SendFlags::kNone, next_++);
    ASSERT_NE(wqe, nullptr);
    wqe->remote_stag = me.add_region(me.take(16), 16);
    me.commit_send();
  }
  void run() { EXPECT_TRUE(net_.run_until_idle()); }

  [[nodiscard]] static std::vector<Step> of(Endpoint& side, What what) {
    std::vector<Step> out;
    std::ranges::copy_if(side.steps, std::back_inserter(out),
                         [&](const Step& one) { return one.what == what; });
    return out;
  }
  [[nodiscard]] Endpoint& client() { return net_.client(); }
  [[nodiscard]] Endpoint& server() { return net_.server(); }

  static constexpr std::size_t kSize = 100'000;

 private:
  SimPair net_;
  std::uint64_t next_ = 0;
  std::uint8_t* source_ = nullptr;
  std::uint8_t* target_ = nullptr;
};

// Each request begins where the one before it ended, and is placed where it ends.
TEST(SimSteps, OfEachRequestAndItsMessage) {
  for_each_seed(20, [&](std::uint64_t seed) {
    Steps steps(busy_config(seed, seed * 977 + 1));
    for (int i = 0; i < 5; ++i) {
      steps.write(i == 2 ? 50'000 : 64);
      steps.send(i == 3 ? 20'000 : 8);
    }
    steps.run();
    const std::vector<Step> begun = Steps::of(steps.client(), What::kBegun);
    const std::vector<Step> built = Steps::of(steps.client(), What::kBuilt);
    const std::vector<Step> placed = Steps::of(steps.server(), What::kPlaced);
    ASSERT_EQ(begun.size(), 10U);
    ASSERT_EQ(built.size(), 10U);
    ASSERT_EQ(placed.size(), 10U);
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(begun[i].request, i);
      EXPECT_EQ(built[i].request, i);
      EXPECT_LT(begun[i].offset, built[i].offset);
      if (i != 0) {
        EXPECT_GE(begun[i].offset, built[i - 1].offset);
      }
      EXPECT_EQ(placed[i].offset, built[i].offset);
      EXPECT_EQ(placed[i].op, i % 2 == 0 ? SendOp::kWrite : SendOp::kSend);
    }
    EXPECT_EQ(placed[4].length, 50'000U);
    EXPECT_EQ(placed[7].length, 20'000U);
    const std::vector<Step> sent = Steps::of(steps.client(), What::kSent);
    EXPECT_TRUE(std::ranges::is_sorted(sent, {}, &Step::offset));
    ASSERT_FALSE(sent.empty());
    EXPECT_GE(sent.back().offset, built.back().offset);
  });
}

TEST(SimSteps, ALocalRequestIsBuiltAtOnceAndHasNoOctets) {
  Steps steps(SimConfig{});
  steps.write(64);
  steps.invalidate();
  steps.write(64);
  steps.run();
  const std::vector<Step> begun = Steps::of(steps.client(), What::kBegun);
  const std::vector<Step> built = Steps::of(steps.client(), What::kBuilt);
  ASSERT_EQ(begun.size(), 3U);
  ASSERT_EQ(built.size(), 3U);
  EXPECT_EQ(built[1].request, 1U);
  EXPECT_EQ(built[1].offset, begun[1].offset);
}

TEST(SimSteps, AReadIsToldAndTheBeginningOfAConnectionIsNot) {
  SimConfig config;
  config.offer[0].peer_to_peer = config.offer[0].rtr_read = true;
  for (auto& offer : config.offer) offer.ird = offer.ord = 4;
  Steps steps(config);
  EXPECT_TRUE(Steps::of(steps.server(), What::kPlaced).empty());
  steps.read(5000);
  steps.run();
  const std::vector<Step> placed = Steps::of(steps.server(), What::kPlaced);
  ASSERT_EQ(placed.size(), 1U);
  EXPECT_EQ(placed[0].op, SendOp::kRead);
}

TEST(SimSteps, NothingIsToldUnasked) {
  SimPair net(SimConfig{});
  ASSERT_TRUE(net.establish());
  std::uint8_t* const source = net.client().take(8);
  net.server().post_recv(1, net.server().take(8), 8);
  net.client().post_send(SendOp::kSend, SendFlags::kSignaled, 1, source, 8);
  EXPECT_TRUE(net.run_until_idle());
  EXPECT_TRUE(net.client().steps.empty());
  EXPECT_TRUE(net.server().steps.empty());
}

}  // namespace
}  // namespace weft::testing
