// Links of `weft lab run`, as they are written.
#include "lab/link.h"

#include <gtest/gtest.h>

namespace weft::lab {
namespace {

using namespace std::chrono_literals;

TEST(LabLink, IsReadInAnyOrder) {
  const auto link = parse_link("delay=5ms,rate=1.5Gbit,queue=64kB");
  ASSERT_TRUE(link) << link.error();
  EXPECT_EQ(*link, (Link{1'500'000'000, 5ms, 64'000}));
  EXPECT_EQ(*parse_link(""), Link{});
  EXPECT_EQ(parse_link("delay=250us")->delay, 250us);
  EXPECT_EQ(parse_link("rate=9600bit")->bits_per_s, 9600U);
}

TEST(LabLink, MistakesNameTheWordAndSayWhatIsLegal) {
  for (const auto& [text, words] :
       {std::pair("rate=1", "'rate=1': a rate is like"), std::pair("rate=-1Mbit", "a rate is like"),
        std::pair("rate=nanMbit", "a rate is like"), std::pair("rate=0Mbit", "a rate is like"),
        std::pair("rate=2000Gbit", "at most 1000Gbit"), std::pair("delay=5", "a delay is like"),
        std::pair("delay=11s", "at most 10s"), std::pair("queue=1GB", "a queue is like"),
        std::pair("delay=1ms,queue=1MB", "without rate= nothing waits"),
        std::pair("delay=1ms,delay=2ms", "'delay=2ms': write each of"),
        std::pair("loss=1%", "'loss=1%': write each of"), std::pair(",", "'': write each of")}) {
    const auto link = parse_link(text);
    ASSERT_FALSE(link) << text;
    EXPECT_NE(link.error().find(words), std::string::npos) << text << ": " << link.error();
  }
}

TEST(LabLink, AQueueHoldsTwoRoundTrips) {
  EXPECT_EQ(queue_of({1'000'000'000, 5ms, 0}), 2'500'000U);
  EXPECT_EQ(queue_of({1'000'000, 1ms, 0}), 256U << 10U);
  EXPECT_EQ(queue_of({0, 1s, 0}), 256U << 10U);
  EXPECT_EQ(queue_of({1'000'000'000'000, 10s, 0}), 1'000'000'000U);
  EXPECT_EQ(queue_of({1'000, 1ms, 77}), 77U);
}

}  // namespace
}  // namespace weft::lab
