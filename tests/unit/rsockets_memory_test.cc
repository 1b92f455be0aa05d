// Memory of an rsocket: its own rings, and what the program maps for its peer.
#include <gtest/gtest.h>
#include <weft/weft.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "rsockets/rs_maps.h"
#include "rsockets/rs_memory.h"

namespace weft::rsockets {
namespace {

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    Config config;
    config.log = LogLevel::kOff;
    auto device = Device::open(config);
    ASSERT_TRUE(device);
    auto domain = (*device)->create_pd();
    ASSERT_TRUE(domain);
    pd_ = std::move(*domain);
  }

  std::shared_ptr<ProtectionDomain> pd_;
  std::array<std::uint8_t, 4096> octets_{};
};
using RsMemoryTest = Memory;
using RsMapsTest = Memory;

TEST_F(RsMemoryTest, IsRegisteredToItsLastOctet) {
  RsMemory memory;
  ASSERT_TRUE(memory.create(*pd_, 1000, Access::kLocalWrite));
  EXPECT_EQ(memory.size(), 1000U);
  EXPECT_EQ(memory.region().addr(), memory.at(0));
  EXPECT_EQ(memory.region().length(), 1000U);
  EXPECT_EQ(memory.at(999), memory.at(0) + 999);
  EXPECT_EQ(*memory.at(999), 0);
  const Sge sge = memory.sge(10, 20);
  EXPECT_EQ(sge.addr, reinterpret_cast<std::uintptr_t>(memory.at(10)));
  EXPECT_EQ(sge.length, 20U);
  EXPECT_EQ(sge.lkey, memory.region().lkey());
}

TEST_F(RsMemoryTest, GivesItsRegistrationBackBeforeItsOctets) {
  const std::size_t before = pd_->users();
  {
    RsMemory memory;
    ASSERT_TRUE(memory.create(*pd_, 1000, Access::kLocalWrite));
    EXPECT_EQ(pd_->users(), before + 1);
  }
  EXPECT_EQ(pd_->users(), before);
}

TEST_F(RsMemoryTest, RightsThatVerbsRefusesAreRefused) {
  RsMemory memory;
  const Status made = memory.create(*pd_, 1000, Access::kRemoteWrite);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error(), Error::kInvalidArgument);
}

TEST_F(RsMapsTest, OffersAreToldInOrderAndOnce) {
  RsMaps maps;
  maps.open(2);
  EXPECT_FALSE(maps.pending());
  ASSERT_TRUE(maps.add(*pd_, octets_.data(), 100, true, 7));
  ASSERT_TRUE(maps.add(*pd_, octets_.data() + 100, 50, true, 900));
  ASSERT_TRUE(maps.pending());
  EXPECT_EQ(maps.next().slot, 0);
  EXPECT_EQ(maps.next().entry.offset, 7U);
  EXPECT_EQ(maps.next().entry.sge.addr, reinterpret_cast<std::uintptr_t>(octets_.data()));
  EXPECT_EQ(maps.next().entry.sge.length, 100U);
  maps.told();
  EXPECT_EQ(maps.next().slot, 1);
  EXPECT_EQ(maps.next().entry.offset, 900U);
  maps.told();
  EXPECT_FALSE(maps.pending());
}

TEST_F(RsMapsTest, WhatThePeerMayNotWriteIsNotOffered) {
  RsMaps maps;
  maps.open(1);
  const std::size_t before = pd_->users();
  ASSERT_TRUE(maps.add(*pd_, octets_.data(), 100, false, 0));
  EXPECT_EQ(pd_->users(), before + 1);
  EXPECT_FALSE(maps.pending());
  EXPECT_TRUE(maps.add(*pd_, octets_.data(), 100, true, 0)) << "it took no entry of the peer's";
}

TEST_F(RsMapsTest, PeerWithoutAFreeEntryIsOfferedNothingMore) {
  RsMaps maps;
  maps.open(1);
  ASSERT_TRUE(maps.add(*pd_, octets_.data(), 100, true, 0));
  const std::size_t before = pd_->users();
  const Status refused = maps.add(*pd_, octets_.data() + 100, 100, true, 100);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), Error::kNoSpace);
  EXPECT_EQ(pd_->users(), before);
  ASSERT_TRUE(maps.remove(octets_.data(), 100));
  EXPECT_TRUE(maps.add(*pd_, octets_.data() + 100, 100, true, 100));
}

TEST_F(RsMapsTest, MemoryThatIsNotThereTakesNoEntry) {
  RsMaps maps;
  maps.open(1);
  EXPECT_FALSE(maps.add(*pd_, nullptr, 100, true, 0));
  EXPECT_FALSE(maps.pending());
  EXPECT_TRUE(maps.add(*pd_, octets_.data(), 100, true, 0));
}

TEST_F(RsMapsTest, RemovesWhatHasThisPlaceAndLengthAlone) {
  RsMaps maps;
  maps.open(2);
  const std::size_t before = pd_->users();
  ASSERT_TRUE(maps.add(*pd_, octets_.data(), 100, true, 0));
  const Status other = maps.remove(octets_.data(), 99);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error(), Error::kNotFound);
  EXPECT_FALSE(maps.remove(octets_.data() + 1, 100));
  EXPECT_TRUE(maps.remove(octets_.data(), 100));
  EXPECT_EQ(pd_->users(), before);
  EXPECT_FALSE(maps.remove(octets_.data(), 100));
}

TEST_F(RsMapsTest, OfferThatWasTakenBackIsNotTold) {
  RsMaps maps;
  maps.open(2);
  ASSERT_TRUE(maps.add(*pd_, octets_.data(), 100, true, 1));
  ASSERT_TRUE(maps.add(*pd_, octets_.data() + 100, 100, true, 2));
  ASSERT_TRUE(maps.remove(octets_.data(), 100));
  ASSERT_TRUE(maps.pending());
  EXPECT_EQ(maps.next().entry.offset, 2U);
  maps.told();
  EXPECT_FALSE(maps.pending());
}

TEST_F(RsMapsTest, AfterClearNothingIsReached) {
  const std::size_t before = pd_->users();
  RsMaps maps;
  maps.open(1);
  ASSERT_TRUE(maps.add(*pd_, octets_.data(), 100, true, 0));
  maps.clear();
  EXPECT_EQ(pd_->users(), before);
}

}  // namespace
}  // namespace weft::rsockets
