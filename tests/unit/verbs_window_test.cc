#include "verbs/window.h"

#include <array>

#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

using Type = MemoryWindow::Type;

constexpr auto kBindable =
    Access::kLocalWrite | Access::kRemoteRead | Access::kBindWindow | Access::kRemoteInvalidate;
constexpr auto kReadWrite = Access::kRemoteRead | Access::kRemoteWrite;

class WindowTest : public ::testing::Test {
 protected:
  WindowTest()
      : region(*host.pd->register_memory(memory.data(), memory.size(), kBindable)),
        type1(*host.pd->create_window(Type::kType1)),
        type2(*host.pd->create_window(Type::kType2)) {}

  proto::SendWqe& wqe() { return *reinterpret_cast<proto::SendWqe*>(slot.data()); }

  SendWr bind_wr(MemoryWindow& window, std::uint64_t offset, std::uint64_t length,
                 Access access = kReadWrite) {
    SendWr wr;
    wr.op = SendOp::kBindWindow;
    wr.window = &window;
    wr.window_region = region.get();
    wr.rkey = (window.rkey() & ~0xffU) | ((window.rkey() + 1) & 0xffU);
    wr.remote_addr = region->iova() + offset;
    wr.window_length = length;
    wr.window_access = access;
    return wr;
  }
  WcStatus bind(const SendWr& wr, std::uint32_t stream = 1) {
    new (slot.data()) proto::SendWqe;
    const auto prepared = prepare_bind(wr, *host.pd, wqe());
    EXPECT_TRUE(prepared);
    return execute_bind(*host.pd, {host.pd->number(), stream}, wqe());
  }
  WcStatus local_invalidate(std::uint32_t key, std::uint32_t stream = 1) {
    new (slot.data()) proto::SendWqe;
    wqe().remote_stag = Stag{key};
    return execute_local_invalidate(*host.pd, {host.pd->number(), stream}, wqe());
  }
  proto::Violation remote_invalidate(std::uint32_t key, std::uint32_t stream = 1) {
    return execute_remote_invalidate(*host.pd, {host.pd->number(), stream}, Stag{key});
  }
  proto::MemoryFault reach(std::uint32_t stag, std::uint64_t to, std::uint64_t length,
                           std::uint32_t stream = 1, Access need = Access::kRemoteWrite) {
    proto::Pin pin;
    std::uint8_t* at = nullptr;
    return host.device->stags().resolve(Stag{stag}, to, length, need, {host.pd->number(), stream},
                                        pin, at);
  }

  Host host;
  Bytes memory = Bytes(4096);
  std::shared_ptr<MemoryRegion> region;
  std::shared_ptr<MemoryWindow> type1, type2;
  alignas(16) std::array<std::uint8_t, sizeof(proto::SendWqe) + proto::kSendTailMin> slot{};
};

TEST_F(WindowTest, Type2BelongsToTheStreamThatBoundIt) {
  EXPECT_FALSE(type2->bound());
  ASSERT_EQ(bind(bind_wr(*type2, 100, 200)), WcStatus::kSuccess);
  EXPECT_TRUE(type2->bound());
  const std::uint64_t base = region->iova() + 100;
  EXPECT_EQ(reach(type2->rkey(), base, 200), proto::MemoryFault::kNone);
  EXPECT_EQ(reach(type2->rkey(), base, 201), proto::MemoryFault::kBounds);
  EXPECT_EQ(reach(type2->rkey(), base - 1, 1), proto::MemoryFault::kBounds);
  EXPECT_EQ(reach(type2->rkey(), base, 1, 2), proto::MemoryFault::kNotOfStream);
}

TEST_F(WindowTest, Type1ServesEveryStreamOfItsDomain) {
  ASSERT_EQ(bind(bind_wr(*type1, 0, 10)), WcStatus::kSuccess);
  EXPECT_EQ(reach(type1->rkey(), region->iova(), 1, 2), proto::MemoryFault::kNone);
}

TEST_F(WindowTest, Type1GetsANewKeyAtEachBindAndTheOldOneDies) {
  ASSERT_EQ(bind(bind_wr(*type1, 0, 10)), WcStatus::kSuccess);
  const std::uint32_t first = type1->rkey();
  ASSERT_EQ(bind(bind_wr(*type1, 10, 10)), WcStatus::kSuccess);
  EXPECT_NE(type1->rkey(), first);
  EXPECT_EQ(reach(first, region->iova(), 1), proto::MemoryFault::kInvalidStag);
  EXPECT_EQ(reach(type1->rkey(), region->iova() + 10, 10), proto::MemoryFault::kNone);
}

TEST_F(WindowTest, Type2MustBeInvalidatedBeforeItIsBoundAgain) {
  ASSERT_EQ(bind(bind_wr(*type2, 0, 10)), WcStatus::kSuccess);
  const std::uint32_t key = type2->rkey();
  EXPECT_EQ(bind(bind_wr(*type2, 10, 10)), WcStatus::kWindowBind);
  EXPECT_EQ(reach(key, region->iova(), 1), proto::MemoryFault::kNone);
  EXPECT_EQ(local_invalidate(key), WcStatus::kSuccess);
  EXPECT_FALSE(type2->bound());
  EXPECT_EQ(bind(bind_wr(*type2, 10, 10)), WcStatus::kSuccess);
}

TEST_F(WindowTest, LengthZeroUnbindsType1) {
  ASSERT_EQ(bind(bind_wr(*type1, 0, 10)), WcStatus::kSuccess);
  const std::uint32_t key = type1->rkey();
  EXPECT_EQ(bind(bind_wr(*type1, 0, 0)), WcStatus::kSuccess);
  EXPECT_EQ(reach(key, region->iova(), 1), proto::MemoryFault::kInvalidStag);
}

TEST_F(WindowTest, LengthZeroIsRefusedByType2) {
  EXPECT_EQ(bind(bind_wr(*type2, 0, 0)), WcStatus::kWindowBind);
  ASSERT_EQ(bind(bind_wr(*type2, 0, 10)), WcStatus::kSuccess);
  const std::uint32_t key = type2->rkey();
  EXPECT_EQ(bind(bind_wr(*type2, 0, 0)), WcStatus::kWindowBind);
  EXPECT_EQ(reach(key, region->iova(), 1), proto::MemoryFault::kNone);
}

TEST_F(WindowTest, Type1IsNeverZeroBased) {
  const SendWr wr = bind_wr(*type1, 0, 10, kReadWrite | Access::kZeroBased);
  EXPECT_FALSE(prepare_bind(wr, *host.pd, wqe()));
}

TEST_F(WindowTest, Type2TakesTheKeyOfAnyRkeyAndTheIndexFromTheWindow) {
  SendWr wr = bind_wr(*type2, 0, 10);
  const std::uint32_t right = wr.rkey;
  wr.rkey = (right ^ 0x55aa'5500U);
  ASSERT_EQ(bind(wr), WcStatus::kSuccess);
  EXPECT_EQ(type2->rkey(), right);
  EXPECT_EQ(reach(right, region->iova(), 10), proto::MemoryFault::kNone);
}

TEST_F(WindowTest, ZeroBasedWindowStartsAtOffsetZero) {
  ASSERT_EQ(bind(bind_wr(*type2, 100, 200, kReadWrite | Access::kZeroBased)), WcStatus::kSuccess);
  EXPECT_EQ(reach(type2->rkey(), 0, 200), proto::MemoryFault::kNone);
  EXPECT_EQ(reach(type2->rkey(), 1, 200), proto::MemoryFault::kBounds);
}

TEST_F(WindowTest, BindBeyondTheRegionOrItsRightsFails) {
  EXPECT_EQ(bind(bind_wr(*type2, 4095, 1)), WcStatus::kSuccess);
  EXPECT_EQ(local_invalidate(type2->rkey()), WcStatus::kSuccess);
  EXPECT_EQ(bind(bind_wr(*type2, 4095, 2)), WcStatus::kWindowBind);
  EXPECT_EQ(bind(bind_wr(*type2, 5000, 1)), WcStatus::kWindowBind);
  SendWr before = bind_wr(*type2, 0, 10);
  before.remote_addr -= 1;
  EXPECT_EQ(bind(before), WcStatus::kWindowBind);
  const auto unbindable = *host.pd->register_memory(memory.data(), 10, Access::kLocalWrite);
  SendWr wr = bind_wr(*type2, 0, 10);
  wr.window_region = unbindable.get();
  EXPECT_EQ(bind(wr), WcStatus::kWindowBind);
  const auto read_only =
      *host.pd->register_memory(memory.data(), 10, Access::kRemoteRead | Access::kBindWindow);
  wr.window_region = read_only.get();
  EXPECT_EQ(bind(wr), WcStatus::kWindowBind);
  wr.window_access = Access::kRemoteRead;
  EXPECT_EQ(bind(wr), WcStatus::kSuccess);
}

TEST_F(WindowTest, BindThatCanNeverWorkIsRefusedWhenPosted) {
  const auto refused = [&](const SendWr& wr) {
    new (slot.data()) proto::SendWqe;
    const auto prepared = prepare_bind(wr, *host.pd, wqe());
    return !prepared && prepared.error() == Error::kInvalidArgument;
  };
  SendWr wr = bind_wr(*type2, 0, 10);
  wr.window = nullptr;
  EXPECT_TRUE(refused(wr));
  wr = bind_wr(*type2, 0, 10);
  wr.window_region = nullptr;
  EXPECT_TRUE(refused(wr));
  wr = bind_wr(*type2, 0, 10, Access::kLocalWrite);
  EXPECT_TRUE(refused(wr));
  const auto other = *ProtectionDomainImpl::create(host.device);
  const auto foreign = *other->create_window(Type::kType2);
  wr = bind_wr(*foreign, 0, 10);
  EXPECT_TRUE(refused(wr));
  EXPECT_FALSE(type2->bound());
}

TEST_F(WindowTest, RegionWithWindowsIsBusyUntilTheyAreGone) {
  ASSERT_EQ(bind(bind_wr(*type2, 0, 10)), WcStatus::kSuccess);
  const auto busy = region->deregister();
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error(), Error::kBusy);
  const auto changed = region->reregister(nullptr, memory.data(), 10, nullptr);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error(), Error::kBusy);
  EXPECT_EQ(reach(type2->rkey(), region->iova(), 10), proto::MemoryFault::kNone);
  type2.reset();
  EXPECT_TRUE(region->deregister());
}

TEST_F(WindowTest, RegionThatIsDroppedTakesItsWindowsAccessAlong) {
  ASSERT_EQ(bind(bind_wr(*type2, 0, 10)), WcStatus::kSuccess);
  const std::uint64_t base = region->iova();
  region.reset();
  EXPECT_FALSE(type2->bound());
  EXPECT_EQ(reach(type2->rkey(), base, 1), proto::MemoryFault::kInvalidStag);
}

TEST_F(WindowTest, WindowThatIsDroppedEndsItsAccess) {
  ASSERT_EQ(bind(bind_wr(*type1, 0, 10)), WcStatus::kSuccess);
  const std::uint32_t key = type1->rkey();
  type1.reset();
  EXPECT_EQ(reach(key, region->iova(), 1), proto::MemoryFault::kInvalidStag);
  EXPECT_TRUE(region->deregister());
}

// --- invalidation ---

TEST_F(WindowTest, PeerInvalidatesAWindowOfItsOwnStreamOnly) {
  ASSERT_EQ(bind(bind_wr(*type2, 0, 10)), WcStatus::kSuccess);
  EXPECT_EQ(remote_invalidate(type2->rkey(), 2), proto::Violation::kInvalidateProtection);
  EXPECT_TRUE(type2->bound());
  EXPECT_EQ(remote_invalidate(type2->rkey()), proto::Violation::kNone);
  EXPECT_FALSE(type2->bound());
}

TEST_F(WindowTest, InvalidatingWhatIsInvalidAlreadyIsNoError) {
  ASSERT_EQ(bind(bind_wr(*type2, 0, 10)), WcStatus::kSuccess);
  EXPECT_EQ(remote_invalidate(type2->rkey()), proto::Violation::kNone);
  EXPECT_EQ(remote_invalidate(type2->rkey()), proto::Violation::kNone);
}

TEST_F(WindowTest, PeerInvalidatesARegionOnlyIfItOptedIn) {
  QpSet only(host);
  constexpr auto kAllButInvalidate =
      Access::kLocalWrite | Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic;
  for (const Access access :
       {Access::kNone, Access::kLocalWrite, Access::kRemoteRead, kAllButInvalidate}) {
    const auto plain = *host.pd->register_memory(memory.data(), memory.size(), access);
    EXPECT_EQ(remote_invalidate(plain->rkey()), proto::Violation::kInvalidateOperation);
    EXPECT_EQ(reach(plain->rkey(), plain->iova(), 1, 1, Access::kNone), proto::MemoryFault::kNone);
  }
  const auto one_shot = *host.pd->register_memory(memory.data(), memory.size(),
                                                  kAllButInvalidate | Access::kRemoteInvalidate);
  EXPECT_EQ(remote_invalidate(one_shot->rkey()), proto::Violation::kNone);
  EXPECT_EQ(reach(one_shot->rkey(), one_shot->iova(), 1), proto::MemoryFault::kInvalidStag);
}

TEST_F(WindowTest, PeerInvalidatesNoWindowOfType1) {
  ASSERT_EQ(bind(bind_wr(*type1, 0, 10)), WcStatus::kSuccess);
  EXPECT_EQ(remote_invalidate(type1->rkey()), proto::Violation::kInvalidateProtection);
  EXPECT_TRUE(type1->bound());
}

TEST_F(WindowTest, PeerInvalidatesARegionOnlyIfItsDomainHasNoOtherStream) {
  QpSet only(host);
  {
    QpSet second(host);
    EXPECT_EQ(remote_invalidate(region->rkey()), proto::Violation::kInvalidateOperation);
  }
  EXPECT_EQ(remote_invalidate(region->rkey()), proto::Violation::kNone);
  EXPECT_EQ(reach(region->rkey(), region->iova(), 1, 1, Access::kRemoteRead),
            proto::MemoryFault::kInvalidStag);
  EXPECT_TRUE(region->deregister());
}

TEST_F(WindowTest, PeerDoesNotInvalidateARegionWithWindows) {
  QpSet only(host);
  ASSERT_EQ(bind(bind_wr(*type2, 0, 10)), WcStatus::kSuccess);
  EXPECT_EQ(remote_invalidate(region->rkey()), proto::Violation::kInvalidateOperation);
}

TEST_F(WindowTest, WrongKeyAndOtherDomainAreProtectionErrorsUnknownStagIsNot) {
  QpSet only(host);
  EXPECT_EQ(remote_invalidate(region->rkey() ^ 0x55U), proto::Violation::kInvalidateProtection);
  const auto other = *ProtectionDomainImpl::create(host.device);
  const auto foreign = *other->register_memory(memory.data(), 10, kBindable);
  EXPECT_EQ(remote_invalidate(foreign->rkey()), proto::Violation::kInvalidateProtection);
  const std::uint32_t gone = foreign->rkey();
  ASSERT_TRUE(foreign->deregister());
  EXPECT_EQ(remote_invalidate(gone), proto::Violation::kInvalidateOperation);
}

TEST_F(WindowTest, LocalInvalidateKeepsToItsDomainAndStream) {
  const auto other = *ProtectionDomainImpl::create(host.device);
  const auto foreign = *other->register_memory(memory.data(), 10, kBindable);
  EXPECT_EQ(local_invalidate(foreign->rkey()), WcStatus::kWindowBind);
  ASSERT_EQ(bind(bind_wr(*type2, 0, 10)), WcStatus::kSuccess);
  EXPECT_EQ(local_invalidate(type2->rkey(), 2), WcStatus::kWindowBind);
  EXPECT_EQ(local_invalidate(region->rkey()), WcStatus::kWindowBind);  // a window is bound
  EXPECT_EQ(local_invalidate(type2->rkey()), WcStatus::kSuccess);
  EXPECT_EQ(local_invalidate(region->rkey()), WcStatus::kSuccess);
  ASSERT_EQ(bind(bind_wr(*type1, 0, 10)), WcStatus::kWindowBind);  // the region is not valid
}

}  // namespace
}  // namespace weft::verbs::test
