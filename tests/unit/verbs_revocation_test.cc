// The end of access to memory while a thread that uses it does not run: the test holds the pin of
// such a thread. Other threads go on meanwhile, and the end is final.
#include "verbs/revocation.h"

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "verbs/window.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

using Type = MemoryWindow::Type;

constexpr auto kAllRights = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead |
                            Access::kBindWindow | Access::kRemoteInvalidate;

// Runs something in a thread. The destructor joins: let go of every pin before.
class Running {
 public:
  explicit Running(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          work();
          done_.store(true);
        }) {}
  ~Running() { thread_.join(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  [[nodiscard]] bool done() const { return done_.load(); }
  [[nodiscard]] bool ends() const {
    return eventually([this] { return done(); });
  }

 private:
  std::atomic<bool> done_{false};
  std::thread thread_;
};

class Revocation : public ::testing::Test {
 protected:
  // As a thread that is copying there.
  proto::Pin pin(std::uint32_t key) {
    proto::Pin pin;
    EXPECT_TRUE(pin.acquire(*entry(key), Stag{key}));
    return pin;
  }
  proto::MemoryEntry* entry(std::uint32_t key) { return host.device->stags().find(Stag{key}); }
  bool becomes_invalid(std::uint32_t key) {
    return eventually([&] { return entry(key)->stag.load() == 0; });
  }
  std::shared_ptr<MemoryRegion> add_region() {
    return *host.pd->register_memory(memory.data(), memory.size(), kAllRights);
  }
  // False: some thread holds what registration needs.
  void expect_others_go_on() {
    std::atomic<bool> ok{false};
    std::atomic<bool> done{false};
    std::thread other([&] {
      ok = host.pd->create_window(Type::kType2).has_value() && add_region()->deregister();
      done = true;
    });
    EXPECT_TRUE(eventually([&] { return done.load(); })) << "registration waits";
    unpin();
    other.join();
    EXPECT_TRUE(ok.load());
  }
  void unpin() { held.release(); }
  WcStatus bind(MemoryWindow& window, MemoryRegion& region) {
    alignas(16) std::array<std::uint8_t, sizeof(proto::SendWqe) + proto::kSendTailMin> slot{};
    auto& wqe = *new (slot.data()) proto::SendWqe;
    SendWr wr;
    wr.op = SendOp::kBindWindow;
    wr.window = &window;
    wr.window_region = &region;
    wr.rkey = (window.rkey() & ~0xffU) | ((window.rkey() + 1) & 0xffU);
    wr.remote_addr = region.iova();
    wr.window_length = 64;
    wr.window_access = Access::kRemoteRead;
    EXPECT_TRUE(prepare_bind(wr, *host.pd, wqe));
    return execute_bind(*host.pd, {host.pd->number(), 1}, wqe);
  }

  Host host;
  Bytes memory = Bytes(4096);
  proto::Pin held;
};

TEST_F(Revocation, ATableSaysFalseUntilNobodyIsInTheMemory) {
  const auto region = add_region();
  const Stag stag{region->rkey()};
  held = pin(stag.value);
  const os::MutexLock lock(host.device->memory().mutex);
  EXPECT_FALSE(*host.device->stags().revoke(stag));
  EXPECT_EQ(entry(stag.value)->stag.load(), 0U);
  EXPECT_FALSE(*host.device->stags().revoke(stag));
  unpin();
  EXPECT_TRUE(*host.device->stags().revoke(stag));
  EXPECT_TRUE(*host.device->stags().revoke(stag));
}

TEST_F(Revocation, DeregistrationHoldsUpNoOtherThreadWhileItWaits) {
  const auto region = add_region();
  held = pin(region->rkey());
  const std::uint32_t key = region->rkey();
  const Running ending([&] { EXPECT_TRUE(region->deregister()); });
  EXPECT_TRUE(becomes_invalid(key));
  EXPECT_FALSE(ending.done());
  EXPECT_NE(entry(key)->spec.pd, 0U) << "the slot is free, and a thread is in its memory";
  expect_others_go_on();
  EXPECT_TRUE(ending.ends());
}

TEST_F(Revocation, DroppingARegionHoldsUpNoOtherThreadWhileItWaits) {
  auto region = add_region();
  held = pin(region->rkey());
  const std::uint32_t key = region->rkey();
  const Running ending([&] { region.reset(); });
  EXPECT_TRUE(becomes_invalid(key));
  EXPECT_FALSE(ending.done());
  expect_others_go_on();
  EXPECT_TRUE(ending.ends());
}

TEST_F(Revocation, ReregistrationHoldsUpNoOtherThreadWhileItWaits) {
  const auto region = add_region();
  held = pin(region->rkey());
  const std::uint32_t key = region->rkey();
  const Access reading = Access::kRemoteRead;
  const Running changing([&] { EXPECT_TRUE(region->reregister(nullptr, nullptr, 0, &reading)); });
  EXPECT_TRUE(becomes_invalid(key));
  EXPECT_FALSE(changing.done());
  EXPECT_TRUE(has(entry(key)->spec.access, Access::kRemoteWrite)) << "changed under the reader";
  expect_others_go_on();
  EXPECT_TRUE(changing.ends());
  EXPECT_EQ(region->rkey(), key);
  EXPECT_EQ(entry(key)->stag.load(), key);
}

TEST_F(Revocation, AnInvalidationHoldsUpNoOtherThreadWhileItWaits) {
  const QpSet only(host);
  const auto region = add_region();
  held = pin(region->rkey());
  const Running ending([&] {
    EXPECT_EQ(execute_remote_invalidate(*host.pd, {host.pd->number(), 1}, Stag{region->rkey()}),
              proto::Violation::kNone);
  });
  EXPECT_TRUE(becomes_invalid(region->rkey()));
  EXPECT_FALSE(ending.done());
  expect_others_go_on();
  EXPECT_TRUE(ending.ends());
}

TEST_F(Revocation, ARegionStaysAsLongAsAWindowOfItIsInUse) {
  auto region = add_region();
  const auto window = *host.pd->create_window(Type::kType2);
  ASSERT_EQ(bind(*window, *region), WcStatus::kSuccess);
  held = pin(window->rkey());
  const Running ending([&] {
    EXPECT_EQ(execute_remote_invalidate(*host.pd, {host.pd->number(), 1}, Stag{window->rkey()}),
              proto::Violation::kNone);
  });
  EXPECT_TRUE(becomes_invalid(window->rkey()));
  EXPECT_FALSE(window->bound());
  EXPECT_EQ(region->deregister().error(), Error::kBusy);
  const Running dropping([&] { region.reset(); });
  expect_others_go_on();
  EXPECT_TRUE(ending.ends());
  EXPECT_TRUE(dropping.ends());
}

TEST_F(Revocation, AWindowIsBoundAnewOnlyWhenItsLastBindIsNotInUse) {
  const auto region = add_region();
  const auto window = *host.pd->create_window(Type::kType1);
  ASSERT_EQ(bind(*window, *region), WcStatus::kSuccess);
  const std::uint32_t before = window->rkey();
  held = pin(before);
  const Running binding([&] { EXPECT_EQ(bind(*window, *region), WcStatus::kSuccess); });
  EXPECT_TRUE(becomes_invalid(before));
  EXPECT_FALSE(binding.done());
  expect_others_go_on();
  EXPECT_TRUE(binding.ends());
  EXPECT_EQ(entry(window->rkey())->stag.load(), window->rkey());
  EXPECT_NE(window->rkey(), before);
}

TEST_F(Revocation, DroppingAWindowHoldsUpNoOtherThreadWhileItWaits) {
  const auto region = add_region();
  auto window = *host.pd->create_window(Type::kType2);
  ASSERT_EQ(bind(*window, *region), WcStatus::kSuccess);
  const std::uint32_t key = window->rkey();
  held = pin(key);
  const Running ending([&] { window.reset(); });
  EXPECT_TRUE(becomes_invalid(key));
  EXPECT_FALSE(ending.done());
  EXPECT_EQ(region->deregister().error(), Error::kBusy);
  expect_others_go_on();
  EXPECT_TRUE(ending.ends());
  EXPECT_TRUE(region->deregister());
}

}  // namespace
}  // namespace weft::verbs::test
