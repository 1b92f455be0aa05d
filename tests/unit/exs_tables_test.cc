// Tables of the engine of extended sockets: by descriptor, and by the number of a connection.
#include <gtest/gtest.h>

#include <memory>

#include "exs/core/exs_tables.h"

namespace weft::exs {
namespace {

// The tables never look at a socket: an int in its place will do.
std::shared_ptr<Socket> socket() {
  const auto owner = std::make_shared<int>(0);
  return {owner, reinterpret_cast<Socket*>(owner.get())};
}

TEST(SocketTable, FindsWhatHasTheDescriptor) {
  SocketTable table;
  const auto one = socket();
  EXPECT_EQ(table.add(200, one), nullptr);
  EXPECT_EQ(table.find(200), one);
  EXPECT_EQ(table.find(199), nullptr);
  EXPECT_EQ(table.find(100'000), nullptr);
  EXPECT_EQ(table.find(-1), nullptr);
}

TEST(SocketTable, GivesBackTheSocketWhoseDescriptorIsAnothersNow) {
  SocketTable table;
  const auto one = socket();
  const auto two = socket();
  EXPECT_EQ(table.add(3, one), nullptr);
  EXPECT_EQ(table.add(3, two), one);
  EXPECT_EQ(table.find(3), two);
}

TEST(SocketTable, KeepsTheLaterSocketWhenTheFormerIsRemoved) {
  SocketTable table;
  const auto one = socket();
  const auto two = socket();
  EXPECT_EQ(table.add(3, one), nullptr);
  EXPECT_EQ(table.add(3, two), one);
  table.remove(3, one.get());
  EXPECT_EQ(table.find(3), two);
  table.remove(3, two.get());
  EXPECT_EQ(table.find(3), nullptr);
  table.remove(4711, two.get());
}

TEST(ConnectionNumbers, AreNeverZeroAndNotGivenOutAgainAtOnce) {
  ConnectionNumbers numbers;
  const auto one = socket();
  const std::uint32_t first = numbers.add(one);
  EXPECT_NE(first, 0U);
  EXPECT_EQ(numbers.find(first), one);
  numbers.remove(first);
  EXPECT_EQ(numbers.find(first), nullptr);
  EXPECT_NE(numbers.add(one), first);
}

TEST(ConnectionNumbers, OneThatIsNotThereIsNobodys) {
  ConnectionNumbers numbers;
  numbers.remove(7);
  EXPECT_EQ(numbers.find(7), nullptr);
}

}  // namespace
}  // namespace weft::exs
