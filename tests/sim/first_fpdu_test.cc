// Who speaks first: patience of a server whose client is silent, and of a client.
#include <gtest/gtest.h>

#include <functional>

#include "sim_pair.h"

namespace weft::testing {
namespace {

// A server with a Send for a client of 16 octets; nothing promised about who speaks first.
struct SilentClient {
  explicit SilentClient(Duration server_wait, Duration client_wait = Duration{0})
      : net(config_of(server_wait, client_wait)) {
    EXPECT_TRUE(net.establish());
    up_at = net.server().clock;
    net.client().post_recv(1, net.client().take(kSize), kSize);
    net.server().post_send(SendOp::kSend, SendFlags::kSignaled, 2, net.server().take(kSize), kSize);
  }
  static SimConfig config_of(Duration server_wait, Duration client_wait) {
    SimConfig config;
    config.chunk_max = 7;  // so that an FPDU can be there in part
    config.patience[0] = client_wait;
    config.patience[1] = server_wait;
    return config;
  }
  // The clock at which the server's first octet went out, once the run is over.
  Instant run(const std::function<void()>& step = {}) {
    Instant spoke = Instant::never();
    EXPECT_TRUE(net.run_until_idle([&] {
      if (step) step();
      if (spoke.is_never() && net.server().stream().tx_offset() != 0) spoke = net.server().clock;
    }));
    return spoke;
  }

  static constexpr std::uint32_t kSize = 16;
  SimPair net;
  Instant up_at;
};

TEST(SimFirstFpdu, ServerSpeaksOnceASilentClientHasHadItsTime) {
  constexpr Duration kWait = std::chrono::milliseconds(50);
  SilentClient s(kWait);
  const Instant spoke = s.run();
  EXPECT_GE(spoke, s.up_at + kWait);
  EXPECT_LT(spoke, s.up_at + 2 * kWait);
  EXPECT_EQ(s.net.server().sends.size(), 1U);
  EXPECT_EQ(s.net.client().recvs.size(), 1U);
  EXPECT_EQ(s.net.server().first_fpdus, 0);
}

TEST(SimFirstFpdu, ServerThatIsToldToWaitsForEver) {
  SilentClient s(Duration{0});
  EXPECT_TRUE(s.run().is_never());
  EXPECT_TRUE(s.net.server().sends.empty());
}

TEST(SimFirstFpdu, ServerSpeaksAtOnceWhenTheClientHas) {
  constexpr Duration kWait = std::chrono::hours(1);
  SilentClient s(kWait);
  s.net.client().post_send(SendOp::kWrite, SendFlags::kNone, 3, nullptr, 0, {}, 0);
  EXPECT_LT(s.run(), s.up_at + kWait);
  EXPECT_TRUE(s.net.server().stream().deadline().is_never());
  EXPECT_EQ(s.net.client().recvs.size(), 1U);
}

// A client sends one empty Write to a silent server; no application sees it.
TEST(SimFirstFpdu, ClientNudgesASilentServer) {
  SilentClient s(Duration{0}, std::chrono::milliseconds(50));
  EXPECT_GE(s.run(), s.up_at + std::chrono::milliseconds(50));
  EXPECT_EQ(s.net.server().first_fpdus, 1);
  EXPECT_EQ(s.net.client().stream().counters().tx_fpdus.get(), 1U);
  EXPECT_TRUE(s.net.client().sends.empty());
  EXPECT_TRUE(s.net.server().recvs.empty());
  EXPECT_EQ(s.net.client().recvs.size(), 1U);
}

TEST(SimFirstFpdu, ClientThatIsSpokenToDoesNotNudge) {
  SilentClient s(std::chrono::milliseconds(1), std::chrono::milliseconds(50));
  s.run();
  EXPECT_EQ(s.net.client().stream().counters().tx_fpdus.get(), 0U);
  EXPECT_TRUE(s.net.client().stream().deadline().is_never());
  EXPECT_EQ(s.net.client().recvs.size(), 1U);
}

// Part of an FPDU is there when the time is up: its rest is waited for.
TEST(SimFirstFpdu, ClientThatHasBegunToSpeakIsHeardOut) {
  SilentClient s(std::chrono::hours(1));
  s.net.client().post_send(SendOp::kWrite, SendFlags::kNone, 3, nullptr, 0, {}, 0);
  bool expired = false;
  s.run([&] {
    proto::Stream& server = s.net.server().stream();
    if (expired || server.counters().rx_bytes.get() == 0) return;
    expired = true;
    EXPECT_EQ(s.net.server().first_fpdus, 0);
    server.expired(server.deadline());
    EXPECT_FALSE(server.tx_pending());
  });
  EXPECT_TRUE(expired);
  EXPECT_EQ(s.net.server().first_fpdus, 1);
  EXPECT_EQ(s.net.client().recvs.size(), 1U);
}

}  // namespace
}  // namespace weft::testing
