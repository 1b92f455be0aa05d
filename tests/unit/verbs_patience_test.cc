#include "base/patience.h"

#include <gtest/gtest.h>

namespace weft::verbs {
namespace {

void note(Patience& patience, Yielded how, int times) {
  for (int i = 0; i < times; ++i) patience.note(how);
}

TEST(Patience, IsOverAfterEachInterval) {
  Patience patience;
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 1; i < patience.interval(); ++i) EXPECT_FALSE(patience.is_over());
    EXPECT_TRUE(patience.is_over());
  }
}

TEST(Patience, YieldsMoreOftenBesideAPeerAndSeldomBesideAStranger) {
  Patience patience;
  note(patience, Yielded::kToAPeer, 10);
  EXPECT_EQ(patience.interval(), Patience::kPollsMin);
  note(patience, Yielded::kToNobody, 30);
  EXPECT_EQ(patience.interval(), Patience::kPollsMax);
  note(patience, Yielded::kToAStranger, 30);
  EXPECT_EQ(patience.interval(), Patience::kPollsBesideStrangers);
}

TEST(Patience, APeerAmongStrangersIsFoundAgain) {
  Patience patience;
  note(patience, Yielded::kToAStranger, 30);
  for (int i = 0; i < 30; ++i)
    patience.note(i % 2 == 0 ? Yielded::kToAPeer : Yielded::kToAStranger);
  EXPECT_LE(patience.interval(), 4 * Patience::kPollsMin);
}

TEST(Patience, StrangersThatHaveGoneAreForgottenAtOnce) {
  Patience patience;
  note(patience, Yielded::kToAStranger, 30);
  patience.note(Yielded::kToNobody);
  EXPECT_EQ(patience.interval(), Patience::kPollsMax);
}

}  // namespace
}  // namespace weft::verbs
