// The receive ring of an rsocket, which is offered by halves.
#include "rsockets/rs_receive_ring.h"

#include <gtest/gtest.h>

namespace weft::rsockets {
namespace {

RsReceiveRing opened(std::size_t bytes, std::uint16_t messages) {
  RsReceiveRing ring;
  ring.open(bytes, messages);
  return ring;
}

TEST(RsReceiveRing, TakesNoMoreThanWasOffered) {
  RsReceiveRing ring = opened(100, 8);
  EXPECT_FALSE(ring.announced(51)) << "the second half is not offered yet";
  EXPECT_FALSE(ring.announced(0));
  EXPECT_TRUE(ring.announced(50));
  EXPECT_FALSE(ring.announced(1));
  EXPECT_EQ(ring.unread(), 50U);
  EXPECT_EQ(ring.arrived(), 50U);
}

TEST(RsReceiveRing, TakesNoMoreMessagesThanCredits) {
  RsReceiveRing ring = opened(100, 2);
  EXPECT_TRUE(ring.announced(1));
  EXPECT_TRUE(ring.announced(1));
  EXPECT_FALSE(ring.announced(1));
  ring.taken(1);
  EXPECT_TRUE(ring.announced(1));
}

TEST(RsReceiveRing, OffersTheHalvesInTurn) {
  RsReceiveRing ring = opened(100, 8);
  ASSERT_TRUE(ring.has_half());
  EXPECT_EQ(ring.half_at(), 50U);
  ring.half_offered();
  EXPECT_FALSE(ring.has_half());
  ASSERT_TRUE(ring.announced(60));
  ring.taken(49);
  EXPECT_FALSE(ring.has_half());
  EXPECT_EQ(ring.read_at(), 49U);
  ring.taken(1);
  ASSERT_TRUE(ring.has_half());
  EXPECT_EQ(ring.half_at(), 0U);
  ring.half_offered();
  EXPECT_TRUE(ring.announced(90)) << "the rest of the second half, and the first again";
  ring.taken(100);
  EXPECT_EQ(ring.read_at(), 50U) << "behind the end it goes on at the beginning";
}

TEST(RsReceiveRing, GivesCreditOnceHalfOfItIsUsed) {
  RsReceiveRing ring = opened(100, 4);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(ring.credit_is_due());
    ASSERT_TRUE(ring.announced(2));
    ring.taken(1);
    EXPECT_FALSE(ring.credit_is_due()) << "a message counts when all of it is read";
    ring.taken(1);
  }
  EXPECT_TRUE(ring.credit_is_due());
  EXPECT_EQ(ring.credit(), 6U);
  ring.credited();
  EXPECT_FALSE(ring.credit_is_due());
  ring.message_read();
  ring.message_read();
  EXPECT_TRUE(ring.credit_is_due());
}

}  // namespace
}  // namespace weft::rsockets
