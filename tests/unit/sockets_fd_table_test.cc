// The table of descriptor numbers of the preload libraries.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "sockets/fd_table.h"

namespace weft::sockets {
namespace {

struct Entry {
  std::atomic<int> value;
};
using Table = FdTable<Entry>;

TEST(FdTable, HasNothingBeforeANumberIsNoted) {
  const Table table;
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.end(), 0);
}

TEST(FdTable, FindsWhatItHasMadeAndItsNeighborsAllZero) {
  Table table;
  Entry* made = table.make(7);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->value, 0);
  made->value = 3;
  EXPECT_EQ(table.find(7), made);
  EXPECT_EQ(table.make(7), made);
  ASSERT_NE(table.find(8), nullptr);
  EXPECT_EQ(table.find(8)->value, 0);
  EXPECT_EQ(table.find(100'000), nullptr);
}

TEST(FdTable, EndsBehindTheHighestNumberThatWasNoted) {
  Table table;
  ASSERT_NE(table.make(5000), nullptr);
  ASSERT_NE(table.make(3), nullptr);
  EXPECT_EQ(table.end(), 5001);
  static_cast<void>(table.find(9000));
  EXPECT_EQ(table.end(), 5001);
}

TEST(FdTable, RefusesNumbersBeyondIt) {
  Table table;
  EXPECT_EQ(table.make(-1), nullptr);
  EXPECT_EQ(table.find(-1), nullptr);
  EXPECT_EQ(table.make(Table::kNumbers), nullptr);
  EXPECT_EQ(table.find(Table::kNumbers), nullptr);
  EXPECT_EQ(table.end(), 0);
  EXPECT_NE(table.make(Table::kNumbers - 1), nullptr);
  EXPECT_EQ(table.end(), Table::kNumbers);
}

TEST(FdTable, HasOneEntryForThreadsThatAskAtOnce) {
  for (int turn = 0; turn < 10; ++turn) {
    Table table;
    std::atomic<int> ready{0};
    std::array<Entry*, 4> made{};
    std::vector<std::thread> threads;
    for (Entry*& one : made) {
      threads.emplace_back([&] {
        for (++ready; ready != 4;) std::this_thread::yield();
        one = table.make(11);
        ++one->value;
      });
    }
    for (std::thread& one : threads) one.join();
    for (const Entry* one : made) EXPECT_EQ(one, made[0]);
    EXPECT_EQ(made[0]->value, 4);
  }
}

}  // namespace
}  // namespace weft::sockets
