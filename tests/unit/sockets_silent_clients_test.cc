// How long a server in IWARP mode waits for a client's question.
#include "sockets/iwarp/silent_clients.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::sockets::iwarp {
namespace {

TEST(IwarpWait, IsAsLongAsTheConnectionIsYoung) {
  SilentClients clients;
  EXPECT_EQ(clients.wait("a", 0, 0), SilentClients::kWaitMs);
  EXPECT_EQ(clients.wait("a", 300, 0), SilentClients::kWaitMs - 300);
  EXPECT_EQ(clients.wait("a", 5000, 0), 0) << "it waited to be accepted";
}

TEST(IwarpWait, HalvesForAnAddressWhoseClientsAreSilent) {
  SilentClients clients;
  clients.note("a", true, 0);
  EXPECT_EQ(clients.wait("a", 0, 1), SilentClients::kWaitMs / 2);
  EXPECT_EQ(clients.wait("b", 0, 1), SilentClients::kWaitMs);
  for (int i = 0; i < 100; ++i) clients.note("a", true, i);
  EXPECT_EQ(clients.wait("a", 0, 100), SilentClients::kWaitMs >> SilentClients::kMostHalvings);
  EXPECT_EQ(clients.wait("a", 0, 99 + SilentClients::kForgivesAfterMs), SilentClients::kWaitMs);
}

TEST(IwarpWait, ComesBackWithAQuestion) {
  SilentClients clients;
  clients.note("a", true, 0);
  clients.note("b", false, 1);
  EXPECT_EQ(clients.wait("a", 0, 1), SilentClients::kWaitMs / 2);
  clients.note("a", false, 2);
  EXPECT_EQ(clients.wait("a", 0, 2), SilentClients::kWaitMs);
}

// The latest one takes the place of another.
TEST(IwarpWait, KnowsAFewAddresses) {
  SilentClients clients;
  for (int i = 0; i < 10'000; ++i) clients.note(std::to_string(i), true, 0);
  EXPECT_EQ(clients.wait("9999", 0, 1), SilentClients::kWaitMs / 2);
}

}  // namespace
}  // namespace weft::sockets::iwarp
