// Which posts are left to the next pass (src/progress/collected_posts.h).
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "progress/collected_posts.h"

namespace weft::progress {
namespace {

constexpr std::uint64_t kTicksPerUs = 1000;
constexpr std::uint64_t kApart = 40;  // 64 connections take longer than a pause

struct Connection {
  proto::SendQueue sq;
  CollectedPosts posts{sq};
  bool waits = false;
};

// Posts in turn, each kApart ticks behind the one before. The number of those sent at once.
int sent_at_once(std::size_t connections, int rounds) {
  PostPace pace;
  std::vector<std::unique_ptr<Connection>> all(connections);
  for (auto& one : all) {
    one = std::make_unique<Connection>();
    EXPECT_TRUE(one->sq.allocate(128, 0));
  }
  int sent = 0;
  std::uint64_t now = 1'000'000;
  for (int round = 0; round < rounds; ++round) {
    for (auto& one : all) {
      now += kApart;
      EXPECT_NE(one->sq.reserve(), nullptr);
      one->sq.commit();
      one->waits = one->posts.may_wait(
          pace, {.collecting = one->waits, .many = true, .ticks_per_us = kTicksPerUs},
          [now] { return now; });
      if (one->waits) continue;
      ++sent;
      one->posts.begin_flush();
      one->posts.end_flush(pace);
    }
  }
  return sent;
}

// The connections of a program come to their fourth posts together: what is between two looks of
// one of them is no pause of all.
TEST(CollectedPosts, AStreamOverManyConnectionsGoesOn) { EXPECT_LE(sent_at_once(64, 12), 7); }

}  // namespace
}  // namespace weft::progress
