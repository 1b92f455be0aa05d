// A timer for which there is no memory: what it stands for happens all the same.
#include <gtest/gtest.h>
#include <weft/wiring.h>

#include <chrono>
#include <thread>

#include "support/nth_fails.h"
#include "support/weft_side.h"
#include "wired_end.h"

namespace weft::test {
namespace {

// Whoever polls receives by itself, until it stops.
TEST(NthFailsTimers, PeersOfOneThatPollsNoMoreAreServed) {
  Config config = plain_config();
  config.path = PathMode::kTcp;
  each_fails(Fails::kAllocation, [&](NthFails& fails) {
    Host active_host(config), passive_host(config);
    Endpoint active(active_host), passive(passive_host);
    connect(active_host, active, passive_host, passive);
    Memory from(passive_host, 64), to(active_host, 64);
    constexpr int kPolls = 1000;
    fails.during([&] {
      WorkCompletion wc;
      for (int i = 0; i < kPolls; ++i) EXPECT_EQ(passive.recv_cq->poll({&wc, 1}), 0U);
      return 0;
    });
    post(*active.qp, wr_read(1, from.rkey(), from.to()), {to.sge(0, 8)});
    EXPECT_TRUE(eventually([&] {
      WorkCompletion wc;
      return active.send_cq->poll({&wc, 1}) == 1;
    })) << fails.name();
  });
}

TEST(NthFailsTimers, RetriesRunOut) {
  Config config = roce_config();
  config.retry = RetryMode::kFast;
  each_fails(Fails::kAllocation, [&](NthFails& fails) {
    Host host(config);
    const WiredEnd end(host);
    WiringToReceive nobody;
    nobody.peer_gid = loopback_gid();
    nobody.peer_number = end.qp->number() + 1;
    must(end.qp->wire(nobody), "to RTR");
    must(end.to_rts(), "to RTS");
    std::this_thread::sleep_for(kGlance);  // it has been sought
    const Status posted = fails.during([&] { return end.qp->post_send(wr_send(1)); });
    EXPECT_TRUE(posted) << fails.name();
    WorkCompletion wc;
    EXPECT_TRUE(eventually([&] { return end.cq->poll({&wc, 1}) == 1; })) << fails.name();
    EXPECT_EQ(wc.status, WcStatus::kRetryExceeded) << fails.name();
  });
}

}  // namespace
}  // namespace weft::test
