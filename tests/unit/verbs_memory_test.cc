#include "proto/stag_table.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

constexpr auto kReadWriteAtomic =
    Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic;

class MemoryTest : public ::testing::Test {
 protected:
  // What a peer of stream 1 in `pd` finds.
  proto::MemoryFault reach(std::uint32_t stag, std::uint64_t to, std::uint64_t length,
                           Access need = Access::kRemoteWrite,
                           const ProtectionDomainImpl* pd = nullptr) {
    proto::Pin pin;
    std::uint8_t* at = nullptr;
    const std::uint32_t domain = (pd != nullptr ? pd : host.pd.get())->number();
    return host.device->stags().resolve(Stag{stag}, to, length, need, {domain, 1}, pin, at);
  }
  std::uint64_t to(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

  Host host;
  Bytes memory = Bytes(4096);
};

TEST_F(MemoryTest, RegionIsReachableToItsLastOctetAndNotBeyond) {
  const auto mr = *host.pd->register_memory(memory.data(), memory.size(), kReadWriteAtomic);
  EXPECT_EQ(mr->addr(), memory.data());
  EXPECT_EQ(mr->iova(), to(memory.data()));
  EXPECT_EQ(mr->lkey(), mr->rkey());
  EXPECT_EQ(reach(mr->rkey(), mr->iova() + 4095, 1), proto::MemoryFault::kNone);
  EXPECT_EQ(reach(mr->rkey(), mr->iova() + 4095, 2), proto::MemoryFault::kBounds);
  EXPECT_EQ(reach(mr->rkey() ^ 1U, mr->iova(), 1), proto::MemoryFault::kInvalidStag);
}

TEST_F(MemoryTest, RightsAreThoseAskedForAndNoMore) {
  const auto mr = *host.pd->register_memory(memory.data(), 100, Access::kRemoteRead);
  EXPECT_EQ(reach(mr->rkey(), mr->iova(), 1, Access::kRemoteRead), proto::MemoryFault::kNone);
  EXPECT_EQ(reach(mr->rkey(), mr->iova(), 1, Access::kRemoteWrite), proto::MemoryFault::kNoRight);
  EXPECT_EQ(reach(mr->rkey(), mr->iova(), 1, Access::kLocalWrite), proto::MemoryFault::kNoRight);
}

TEST_F(MemoryTest, OtherDomainDoesNotReachIt) {
  const auto mr = *host.pd->register_memory(memory.data(), 100, kReadWriteAtomic);
  const auto other = *ProtectionDomainImpl::create(host.device);
  EXPECT_EQ(reach(mr->rkey(), mr->iova(), 1, Access::kRemoteRead, other.get()),
            proto::MemoryFault::kNotOfStream);
}

TEST_F(MemoryTest, IovaMovesTheFirstOctet) {
  const auto mr = *host.pd->register_memory_iova(memory.data(), 100, 0x1000, kReadWriteAtomic);
  EXPECT_EQ(mr->iova(), 0x1000U);
  EXPECT_EQ(reach(mr->rkey(), 0x1000, 100), proto::MemoryFault::kNone);
  EXPECT_EQ(reach(mr->rkey(), to(memory.data()), 1), proto::MemoryFault::kBounds);
}

TEST_F(MemoryTest, WhatCanNeverWorkIsRefused) {
  const auto refused = [&](void* addr, std::size_t length, Access access) {
    const auto mr = host.pd->register_memory(addr, length, access);
    return !mr && mr.error() == Error::kInvalidArgument;
  };
  EXPECT_TRUE(refused(nullptr, 1, kReadWriteAtomic));
  EXPECT_TRUE(refused(memory.data(), ~std::size_t{0}, kReadWriteAtomic));
  EXPECT_TRUE(refused(memory.data(), 1, Access::kRemoteWrite));
  EXPECT_TRUE(refused(memory.data(), 1, Access::kRemoteAtomic));
  EXPECT_TRUE(refused(memory.data(), 1, Access::kZeroBased));
  EXPECT_TRUE(refused(memory.data(), 1, Access::kLocalWrite | Access::kRemoteInvalidate));
  EXPECT_TRUE(refused(memory.data(), 1, static_cast<Access>(1U << 20U)));
  const auto wrap =
      host.pd->register_memory_iova(memory.data(), 2, ~std::uint64_t{0}, kReadWriteAtomic);
  EXPECT_FALSE(wrap);
  EXPECT_TRUE(host.pd->register_memory_iova(memory.data(), 1, ~std::uint64_t{0}, kReadWriteAtomic));
  EXPECT_EQ(host.pd->users(), 0U);
}

TEST_F(MemoryTest, LengthZeroIsLegal) {
  EXPECT_TRUE(host.pd->register_memory(memory.data(), 0, kReadWriteAtomic));
  EXPECT_TRUE(host.pd->register_memory(nullptr, 0, kReadWriteAtomic));
}

TEST_F(MemoryTest, DeregistrationIsFinalAndMayBeRepeated) {
  const auto mr = *host.pd->register_memory(memory.data(), 100, kReadWriteAtomic);
  const std::uint32_t key = mr->rkey();
  const std::uint64_t base = mr->iova();
  EXPECT_EQ(host.pd->users(), 1U);
  EXPECT_TRUE(mr->deregister());
  EXPECT_EQ(host.pd->users(), 0U);
  EXPECT_EQ(reach(key, base, 1), proto::MemoryFault::kInvalidStag);
  EXPECT_TRUE(mr->deregister());
  const auto again = mr->reregister(nullptr, memory.data(), 10, nullptr);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error(), Error::kBadState);
}

TEST_F(MemoryTest, DroppingTheRegionDeregistersIt) {
  auto mr = *host.pd->register_memory(memory.data(), 100, kReadWriteAtomic);
  const std::uint32_t key = mr->rkey();
  mr.reset();
  EXPECT_EQ(reach(key, to(memory.data()), 1), proto::MemoryFault::kInvalidStag);
  EXPECT_EQ(host.pd->users(), 0U);
}

TEST_F(MemoryTest, ReregistrationChangesWhatIsAskedAndTheKeys) {
  const auto mr = *host.pd->register_memory(memory.data(), 100, kReadWriteAtomic);
  const std::uint32_t old_key = mr->rkey();
  const auto other = *ProtectionDomainImpl::create(host.device);
  const Access read_only = Access::kRemoteRead;
  ASSERT_TRUE(mr->reregister(other.get(), memory.data() + 100, 50, &read_only));
  EXPECT_NE(mr->rkey(), old_key);
  EXPECT_EQ(reach(old_key, to(memory.data()), 1), proto::MemoryFault::kInvalidStag);
  EXPECT_EQ(reach(mr->rkey(), to(memory.data() + 100), 50, Access::kRemoteRead, other.get()),
            proto::MemoryFault::kNone);
  EXPECT_EQ(reach(mr->rkey(), to(memory.data() + 100), 51, Access::kRemoteRead, other.get()),
            proto::MemoryFault::kBounds);
  EXPECT_EQ(host.pd->users(), 0U);
  EXPECT_EQ(other->users(), 1U);
}

TEST_F(MemoryTest, RefusedReregistrationChangesNothing) {
  const auto mr = *host.pd->register_memory(memory.data(), 100, Access::kRemoteRead);
  const std::uint32_t key = mr->rkey();
  const Access bad = Access::kRemoteWrite;
  EXPECT_FALSE(mr->reregister(nullptr, nullptr, 0, &bad));
  Host elsewhere;
  EXPECT_FALSE(mr->reregister(elsewhere.pd.get(), nullptr, 0, nullptr));
  EXPECT_EQ(mr->rkey(), key);
  EXPECT_EQ(mr->access(), Access::kRemoteRead);
  EXPECT_EQ(reach(key, mr->iova(), 100, Access::kRemoteRead), proto::MemoryFault::kNone);
}

TEST_F(MemoryTest, DomainOutlivesItsOwnersReferenceWhileInUse) {
  auto mr = *host.pd->register_memory(memory.data(), 100, kReadWriteAtomic);
  const std::weak_ptr<ProtectionDomainImpl> pd = host.pd;
  host.pd.reset();
  EXPECT_FALSE(pd.expired());
  mr.reset();
  EXPECT_TRUE(pd.expired());
}

}  // namespace
}  // namespace weft::verbs::test
