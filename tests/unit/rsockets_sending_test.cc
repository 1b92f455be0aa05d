// The counts of the sending side of an rsocket: ring, credits, the peer's table, its end.
#include <gtest/gtest.h>

#include "rsockets/rs_farewell.h"
#include "rsockets/rs_remote_table.h"
#include "rsockets/rs_send_credits.h"
#include "rsockets/rs_send_ring.h"

namespace weft::rsockets {
namespace {

TEST(RsSendRing, WrapsAtItsEnd) {
  RsSendRing ring;
  ring.open(100);
  EXPECT_EQ(ring.before_wrap(70), 70U);
  ring.take(70);
  ring.give_back(70);
  EXPECT_EQ(ring.at(), 70U);
  EXPECT_EQ(ring.before_wrap(70), 30U);
  ring.take(70);
  EXPECT_EQ(ring.at(), 40U);
  EXPECT_EQ(ring.free(), 30U);
}

TEST(RsSendRing, IsLowBelowHalfIfItIsSmall) {
  RsSendRing ring;
  ring.open(100);
  ring.take(50);
  EXPECT_FALSE(ring.is_low());
  ring.take(1);
  EXPECT_TRUE(ring.is_low());
}

TEST(RsSendRing, IsLowBelowAFixedNumberIfItIsLarge) {
  RsSendRing ring;
  ring.open(100'000);
  ring.take(100'000 - 2048);
  EXPECT_FALSE(ring.is_low());
  ring.take(1);
  EXPECT_TRUE(ring.is_low());
}

TEST(RsSendCredits, KeepEightForMessagesThatCostNone) {
  RsSendCredits credits;
  EXPECT_FALSE(credits.any());
  credits.allow(9);
  EXPECT_TRUE(credits.any());
  credits.sent();
  EXPECT_FALSE(credits.any());
}

TEST(RsSendCredits, WrapAndDoNotTrustAPeerThatTakesThemBack) {
  RsSendCredits credits;
  for (std::uint32_t i = 0; i < 0x10010U; ++i) {
    credits.allow(static_cast<std::uint16_t>(i + 9));
    ASSERT_TRUE(credits.any());
    credits.sent();
  }
  credits.allow(0x10);
  EXPECT_FALSE(credits.any());
  credits.allow(0x0f);  // one less than was sent
  EXPECT_FALSE(credits.any());
}

TEST(RsRemoteTable, GoesRoundTheTargetsAndPutsOffersBehindThem) {
  RsConnect peer;
  peer.target_sgl = {1000, 7, 3};
  RsRemoteTable table;
  table.open(peer);
  EXPECT_EQ(table.key(), 7U);
  EXPECT_EQ(table.next_target(), 1000U + RsSge::kSize);  // entry 0 came with the private data
  table.target_written();
  table.target_written();
  EXPECT_EQ(table.next_target(), 1000U);
  EXPECT_EQ(table.offer(0), 1000U + 3 * RsSge::kSize);
  EXPECT_EQ(table.offer(2), 1000U + 3 * RsSge::kSize + 2 * RsIomap::kSize);
  EXPECT_FALSE(table.offers_give_credit_back());
}

TEST(RsFarewell, SaysAShutdownAndThenADisconnect) {
  RsFarewell end;
  EXPECT_FALSE(end.shutdown_said());
  end.advance(FarewellEvent::kShutdownHeldUp);
  EXPECT_TRUE(end.shutdown_due() && !end.shutdown_said());
  end.advance(FarewellEvent::kShutdownSent);
  EXPECT_TRUE(end.shutdown_said() && !end.shutdown_due() && !end.left());
  end.advance(FarewellEvent::kDisconnectHeldUp);
  EXPECT_TRUE(end.disconnect_due() && !end.left());
  end.advance(FarewellEvent::kDisconnectSent);
  EXPECT_TRUE(end.left() && end.shutdown_said());
}

TEST(RsFarewell, ADisconnectTakesThePlaceOfAShutdownThatIsDue) {
  RsFarewell end;
  end.advance(FarewellEvent::kShutdownHeldUp);
  end.advance(FarewellEvent::kDisconnectHeldUp);
  EXPECT_TRUE(end.disconnect_due() && !end.shutdown_due());
}

}  // namespace
}  // namespace weft::rsockets
