// Registration, windows, and what their end means to a peer that keeps writing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "support/weft_side.h"

namespace weft::test {
namespace {

constexpr Access kReadWrite = Access::kRemoteRead | Access::kRemoteWrite;
constexpr Access kBindable = kAllAccess | Access::kBindWindow;

// Two endpoints in one process whose domain is shared.
struct Two : Pair {
  Two() : local(host, 4096), region(host, 4096, kBindable) {}
  // Whether the peer may write under this key; ends the connection if not.
  bool may_write(std::uint32_t rkey, std::uint64_t to) {
    // The Read behind the Write answers only if the Write was taken.
    post(*a.qp, wr_write(1, rkey, to, SendFlags::kNone), {local.sge(0, 8)});
    post(*a.qp, wr_read(2, region.rkey(), region.to()), {local.sge(8, 8)});
    return take(*a.send_cq).status == WcStatus::kSuccess;
  }
  Memory local, region;
};

void bind(Endpoint& owner, MemoryWindow& window, Memory& region, std::size_t at,
          std::uint64_t length, Access access, std::uint32_t rkey) {
  post(*owner.qp, wr_bind(77, window, *region.region, region.to(at), length, access, rkey));
  take_success(*owner.send_cq, 77);
}

TEST(Registration, RightsAreThoseAskedFor) {
  Host host;
  std::vector<std::uint8_t> bytes(64);
  const auto no_local = host.pd->register_memory(bytes.data(), 64, Access::kRemoteWrite);
  ASSERT_FALSE(no_local);
  EXPECT_EQ(no_local.error(), Error::kInvalidArgument);
  EXPECT_FALSE(host.pd->register_memory(bytes.data(), 64, Access::kRemoteAtomic));
  EXPECT_FALSE(host.pd->register_memory(nullptr, 64, Access::kNone));
  EXPECT_TRUE(host.pd->register_memory(nullptr, 0, Access::kNone));
  const auto ok = must(host.pd->register_memory(bytes.data(), 64, kAllAccess), "register");
  EXPECT_EQ(ok->addr(), bytes.data());
  EXPECT_EQ(ok->length(), 64U);
  EXPECT_EQ(ok->lkey(), ok->rkey());
}

TEST(Registration, OffsetsStartWhereAskedFor) {
  Pair pair;
  std::vector<std::uint8_t> bytes(64);
  Memory local(pair.host, 64);
  const auto region =
      must(pair.host.pd->register_memory_iova(bytes.data(), 64, 0xffffffffffffff00, kAllAccess),
           "register");
  post(*pair.a.qp, wr_write(1, region->rkey(), 0xffffffffffffff20), {local.sge(0, 32)});
  post(*pair.a.qp, wr_read(2, region->rkey(), 0xffffffffffffff20), {local.sge(32, 32)});
  take_success(*pair.a.send_cq, 1);
  take_success(*pair.a.send_cq, 2);
  EXPECT_TRUE(std::equal(bytes.begin() + 32, bytes.end(), local.data()));
  // SGEs name the same offsets.
  Sge sge{.addr = 0xffffffffffffff00, .length = 64, .lkey = region->lkey()};
  post_recv(*pair.b.qp, 3, {sge});
  post(*pair.a.qp, wr_send(3), {local.sge()});
  take_success(*pair.b.recv_cq, 3);
}

TEST(Registration, ReregistrationWithOtherRightsKeepsTheKeyAndEndsTheOldRights) {
  Two t;
  const std::uint32_t old_key = t.region.rkey();
  const Access read_only = Access::kLocalWrite | Access::kRemoteRead;
  must(t.region.region->reregister(nullptr, nullptr, 0, &read_only), "reregister");
  EXPECT_EQ(t.region.rkey(), old_key);
  EXPECT_EQ(t.region.region->access(), read_only);
  EXPECT_FALSE(t.may_write(old_key, t.region.to()));
  EXPECT_TRUE(t.region.untouched());
}

// The peer never stops writing; once deregister() has returned no octet changes any more.
TEST(Registration, NothingChangesAfterDeregistrationHasReturned) {
  for (const bool crc : {true, false}) {
    for (int round = 0; round < 4; ++round) {
      Config config = plain_config();
      config.crc = crc;
      Pair pair(config);
      Memory from(pair.host, 1U << 18U);
      Memory target(pair.host, 1U << 18U);
      std::atomic<std::uint64_t> written{0};
      const std::uint32_t rkey = target.rkey();
      // Writes until it is told off.
      std::thread writer([&, rkey] {
        const bool refused = eventually([&] {
          SendWr wr = wr_write(0, rkey, target.to());
          const Sge sge = from.sge();
          wr.sges = std::span(&sge, 1);
          for (int i = 0; i < 50; ++i) (void)pair.a.qp->post_send(wr);
          WorkCompletion wc;
          while (pair.a.send_cq->poll(std::span(&wc, 1)) == 1) ++written;
          return pair.a.qp->state() == QpState::kError;
        });
        EXPECT_TRUE(refused);
      });
      ASSERT_TRUE(eventually([&] { return written > 0; }));
      std::this_thread::sleep_for(milliseconds(5 + round));
      must(target.region->deregister(), "deregister");
      // Everything the peer writes from here on would show.
      std::ranges::fill(target.bytes(), std::uint8_t{0x11});
      std::this_thread::sleep_for(milliseconds(15));
      EXPECT_EQ(std::count(target.data(), target.data() + target.size(), std::uint8_t{0x11}),
                static_cast<std::ptrdiff_t>(target.size()));
      writer.join();
    }
  }
}

TEST(Registration, RegionInUseByAPostedReceiveMayGo) {
  Pair pair;
  auto memory = std::make_unique<Memory>(pair.host, 64);
  post_recv(*pair.b.qp, 1, {memory->sge()});
  memory.reset();
  Memory from(pair.host, 8);
  post(*pair.a.qp, wr_send(1), {from.sge()});
  EXPECT_EQ(take(*pair.b.recv_cq).status, WcStatus::kLocalProtection);
}

TEST(Windows, Type2WorksBetweenBindAndInvalidate) {
  Two t;
  const auto window = must(t.host.pd->create_window(MemoryWindow::Type::kType2), "create");
  EXPECT_FALSE(window->bound());
  const std::uint32_t rkey = next_rkey(*window);
  bind(t.b, *window, t.region, 128, 64, kReadWrite, rkey);
  EXPECT_TRUE(window->bound());
  EXPECT_EQ(window->rkey(), rkey);
  EXPECT_TRUE(t.may_write(rkey, t.region.to(128)));
  EXPECT_EQ(t.region.copy(128, 8), t.local.copy(0, 8));
  EXPECT_EQ(t.region.region->deregister().error(), Error::kBusy);
  post(*t.b.qp, wr_local_invalidate(5, rkey));
  EXPECT_EQ(take_success(*t.b.send_cq, 5).op, WcOp::kLocalInvalidate);
  EXPECT_FALSE(window->bound());
  EXPECT_FALSE(t.may_write(rkey, t.region.to(128)));
  must(t.region.region->deregister(), "deregister");
}

TEST(Windows, Type2IsExactToTheOctetAndToItsRights) {
  struct Case {
    std::size_t at;
    bool ok;
  };
  for (const Case& c : {Case{128, true}, Case{184, true}, Case{127, false}, Case{185, false}}) {
    SCOPED_TRACE(c.at);
    Two t;
    const auto window = must(t.host.pd->create_window(MemoryWindow::Type::kType2), "create");
    bind(t.b, *window, t.region, 128, 64, kReadWrite, next_rkey(*window));
    EXPECT_EQ(t.may_write(window->rkey(), t.region.to(c.at)), c.ok);
  }
  Two t;
  const auto window = must(t.host.pd->create_window(MemoryWindow::Type::kType2), "create");
  bind(t.b, *window, t.region, 128, 64, Access::kRemoteRead, next_rkey(*window));
  EXPECT_FALSE(t.may_write(window->rkey(), t.region.to(128)));
  EXPECT_TRUE(t.region.untouched());
}

TEST(Windows, Type2MustBeInvalidatedBeforeItIsBoundAgain) {
  Two t;
  const auto window = must(t.host.pd->create_window(MemoryWindow::Type::kType2), "create");
  bind(t.b, *window, t.region, 0, 64, kReadWrite, next_rkey(*window));
  SendWr again =
      wr_bind(2, *window, *t.region.region, t.region.to(), 64, kReadWrite, next_rkey(*window));
  const Status posted = t.b.qp->post_send(again);
  if (posted) {
    EXPECT_EQ(take(*t.b.send_cq).status, WcStatus::kWindowBind);
  }
}

TEST(Windows, ZeroBasedWindowStartsAtOffsetZero) {
  Two t;
  const auto window = must(t.host.pd->create_window(MemoryWindow::Type::kType2), "create");
  bind(t.b, *window, t.region, 256, 64, kReadWrite | Access::kZeroBased, next_rkey(*window));
  EXPECT_TRUE(t.may_write(window->rkey(), 4));
  EXPECT_EQ(t.region.copy(260, 8), t.local.copy(0, 8));
}

TEST(Windows, Type1GetsANewKeyAtEachBindAndServesTheWholeDomain) {
  Two t;
  Endpoint c(t.host);
  Endpoint d(t.host);
  connect(t.host, c, t.host, d);
  const auto window = must(t.host.pd->create_window(MemoryWindow::Type::kType1), "create");
  bind(t.b, *window, t.region, 0, 64, kReadWrite, 0);
  const std::uint32_t first = window->rkey();
  post(*c.qp, wr_write(1, first, t.region.to()), {t.local.sge(0, 8)});
  post(*c.qp, wr_read(2, first, t.region.to()), {t.local.sge(8, 8)});
  take_success(*c.send_cq, 1);
  take_success(*c.send_cq, 2);
  bind(t.b, *window, t.region, 64, 64, kReadWrite, 0);  // while bound
  EXPECT_NE(window->rkey(), first);
  EXPECT_TRUE(t.may_write(window->rkey(), t.region.to(64)));
  EXPECT_FALSE(t.may_write(first, t.region.to(0)));
}

TEST(Windows, BindOfLengthZeroUnbinds) {
  Two t;
  const auto window = must(t.host.pd->create_window(MemoryWindow::Type::kType1), "create");
  bind(t.b, *window, t.region, 0, 64, kReadWrite, 0);
  EXPECT_TRUE(window->bound());
  post(*t.b.qp, wr_bind(78, *window, *t.region.region, t.region.to(), 0, Access::kNone, 0));
  take_success(*t.b.send_cq, 78);
  EXPECT_FALSE(window->bound());
  must(t.region.region->deregister(), "deregister");
}

TEST(Windows, RegionWithoutTheBindRightRefuses) {
  Two t;
  Memory plain(t.host, 64);
  const auto window = must(t.host.pd->create_window(MemoryWindow::Type::kType2), "create");
  const Status posted = t.b.qp->post_send(
      wr_bind(1, *window, *plain.region, plain.to(), 64, kReadWrite, next_rkey(*window)));
  if (posted) {
    EXPECT_EQ(take(*t.b.send_cq).status, WcStatus::kWindowBind);
  }
  EXPECT_FALSE(window->bound());
}

TEST(LocalInvalidate, EndsARegionForThePeer) {
  Two t;
  Memory region(t.host, 64);
  post(*t.b.qp, wr_local_invalidate(5, region.rkey()));
  take_success(*t.b.send_cq, 5);
  EXPECT_FALSE(t.may_write(region.rkey(), region.to()));
  EXPECT_TRUE(region.untouched());
}

TEST(RemoteAccess, OfTheQueuePairLimitsWhatRegionsAllow) {
  Two t;
  t.b.qp->set_remote_access(Access::kRemoteRead);
  EXPECT_FALSE(t.may_write(t.region.rkey(), t.region.to()));
  EXPECT_TRUE(t.region.untouched());
}

}  // namespace
}  // namespace weft::test
