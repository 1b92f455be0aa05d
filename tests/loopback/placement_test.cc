// Placement targets: Writes that go elsewhere than to memory.
#include <weft/placement.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "support/weft_side.h"
#include "window_model.h"

namespace weft::test {
namespace {

TEST(WindowTarget, AgreesWithANaiveModel) {
  const std::uint64_t from = seed();
  SCOPED_TRACE("WEFT_SEED=" + std::to_string(from));
  Numbers n(from);
  for (int round = 0; round < 300; ++round) {
    Surface s;
    s.row_bytes = 1 + n.upto(60);
    s.rows = 1 + n.upto(30);
    s.pitch = s.row_bytes + n.upto(7);
    std::vector<std::uint8_t> real(s.pitch * s.rows, 0);
    std::vector<std::uint8_t> naive = real;
    s.first = real.data();
    const std::size_t row_bytes = 1 + n.upto(60);
    const std::size_t rows = 1 + n.upto(30);
    const auto target = must(WindowTarget::create(row_bytes, rows, s), "target");
    WindowView view;
    for (int step = 0; step < 30; ++step) {
      if (n.upto(3) == 0) {
        view = n.view();
        must(target->set_view(view), "view");
      }
      const std::size_t at = n.upto(target->length());
      const auto octets = n.octets(n.upto(target->length() - at));
      ASSERT_EQ(target->place(at, octets), Placed::kTaken);
      place_naively(naive, s, row_bytes, view, at, octets);
      ASSERT_EQ(real, naive) << "round " << round << ", step " << step;
    }
  }
}

TEST(WindowTarget, RefusesWhatCannotBe) {
  std::vector<std::uint8_t> memory(100);
  const Surface good{memory.data(), 10, 10, 10};
  EXPECT_TRUE(WindowTarget::create(10, 10, good));
  EXPECT_FALSE(WindowTarget::create(0, 10, good));
  EXPECT_FALSE(WindowTarget::create(10, 0, good));
  EXPECT_FALSE(WindowTarget::create(~std::size_t{0}, ~std::size_t{0}, good));
  EXPECT_FALSE(WindowTarget::create(10, 10, {nullptr, 10, 10, 10}));
  EXPECT_FALSE(WindowTarget::create(10, 10, {memory.data(), 10, 10, 9}));
  EXPECT_FALSE(WindowTarget::create(10, 10, {memory.data(), 10, ~std::size_t{0}, 10}));
  const auto target = must(WindowTarget::create(10, 10, good), "target");
  WindowView far;
  far.x = std::numeric_limits<std::int64_t>::max();
  EXPECT_FALSE(target->set_view(far));
  EXPECT_EQ(target->place(95, std::vector<std::uint8_t>(6)), Placed::kRefused);
  EXPECT_EQ(target->place(95, std::vector<std::uint8_t>(5)), Placed::kTaken);
}

// Keeps what it is given.
class Log final : public PlacementTarget {
 public:
  Placed place(std::uint64_t offset, std::span<const std::uint8_t> octets) noexcept override {
    ++calls;
    if (stuck) return Placed::kLater;
    if (delay != 0 && calls % delay != 0) return Placed::kLater;
    if (offset != next) in_order = false;
    next = offset + octets.size();
    all.insert(all.end(), octets.begin(), octets.end());
    return refuses ? Placed::kRefused : Placed::kTaken;
  }
  unsigned delay = 0;  // takes every so many-th time only
  std::atomic<unsigned> calls{0};
  std::atomic<bool> stuck{false};
  std::uint64_t next = 0;
  bool in_order = true;
  bool refuses = false;
  std::vector<std::uint8_t> all;
};

// In memory, and gone with the object.
struct File {
  int fd = memfd_create("weft-test", MFD_CLOEXEC);
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(fd); }
  [[nodiscard]] std::vector<std::uint8_t> content() const {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(lseek(fd, 0, SEEK_END)));
    EXPECT_EQ(pread(fd, out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
    return out;
  }
};

struct World : Pair {
  explicit World(const Config& config = plain_config()) : Pair(config), mine(host, 1U << 20U) {}
  // Whether a Write was taken: the Read behind it is answered only then.
  bool write(std::uint32_t rkey, std::uint64_t to, std::size_t at, std::size_t count) {
    Memory probe(host, 8);
    post(*a.qp, wr_write(1, rkey, to, SendFlags::kNone), {mine.sge(at, count)});
    post(*a.qp, wr_read(2, probe.rkey(), probe.to()), {probe.sge()});
    return take(*a.send_cq).status == WcStatus::kSuccess;
  }
  Memory mine;
};

Sge sge_of(const MemoryRegion& region, std::uint64_t to, std::size_t count) {
  return {.addr = to, .length = static_cast<std::uint32_t>(count), .lkey = region.lkey()};
}

TEST(Placement, ACallbackGetsEachOctetInOrder) {
  for (const Config& config : framings()) {
    World w(config);
    w.mine.fill_pattern(3);
    const auto log = std::make_shared<Log>();
    const auto region = must(register_target(*w.host.pd, log, 1U << 20U, 0x10000), "register");
    EXPECT_EQ(region->addr(), nullptr);
    EXPECT_EQ(region->access(), Access::kRemoteWrite);
    std::size_t at = 0;
    for (const std::size_t count : {1UL, 7UL, 1400UL, 9000UL, 70000UL, 300000UL}) {
      ASSERT_TRUE(w.write(region->rkey(), 0x10000 + at, at, count));
      at += count;
    }
    EXPECT_TRUE(log->in_order);
    EXPECT_EQ(log->all, w.mine.copy(0, at));
  }
}

TEST(Placement, ASlowTargetGetsEachOctetInOrder) {
  for (const Config& config : framings()) {
    World w(config);
    w.mine.fill_pattern(4);
    const auto log = std::make_shared<Log>();
    log->delay = 3;
    const auto region = must(register_target(*w.host.pd, log, 1U << 20U), "register");
    ASSERT_TRUE(w.write(region->rkey(), 0, 0, 100000));
    ASSERT_TRUE(w.write(region->rkey(), 100000, 100000, 1));
    EXPECT_TRUE(log->in_order);
    EXPECT_EQ(log->all, w.mine.copy(0, 100001));
  }
}

TEST(Placement, AFileHoldsWhatWasWrittenToIt) {
  const std::uint64_t from = seed();
  SCOPED_TRACE("WEFT_SEED=" + std::to_string(from));
  Numbers n(from);
  for (const Config& config : framings()) {
    World w(config);
    w.mine.fill_pattern(6);
    constexpr std::size_t kBytes = 900'000;
    constexpr std::size_t kOffset = 4097;
    const File file;
    std::vector<std::uint8_t> naive(kOffset + kBytes, 0);
    ASSERT_EQ(ftruncate(file.fd, static_cast<off_t>(naive.size())), 0);
    const auto target = must(FileTarget::create(file.fd, kOffset, 2), "target");
    const auto region = must(register_target(*w.host.pd, target, kBytes, 77), "register");
    for (int i = 0; i < 40; ++i) {
      const std::size_t count = 1 + n.upto(i % 8 == 0 ? kBytes - 1 : 3000);
      const std::size_t to = n.upto(kBytes - count);
      const std::size_t at = n.upto((1U << 20U) - count);
      ASSERT_TRUE(w.write(region->rkey(), 77 + to, at, count));
      const auto octets = w.mine.copy(at, count);
      std::copy(octets.begin(), octets.end(),
                naive.begin() + static_cast<std::ptrdiff_t>(kOffset + to));
      if (n.upto(3) == 0) {
        ASSERT_EQ(target->flush(), 0);
        ASSERT_EQ(file.content(), naive);
      }
    }
    ASSERT_EQ(target->flush(), 0);
    EXPECT_EQ(file.content(), naive);
  }
}

// Epoll says once that the peer has gone, and then the stream can't read on.
TEST(Placement, APeerThatGoesWhileItsTargetIsSlowIsSeenToGo) {
  World w;
  const auto log = std::make_shared<Log>();
  log->stuck = true;
  const auto region = must(register_target(*w.host.pd, log, 1U << 20U), "register");
  post(*w.a.qp, wr_write(1, region->rkey(), 0, SendFlags::kNone), {w.mine.sge(0, 30000)});
  while (log->calls == 0) std::this_thread::yield();
  must(w.a.connection->disconnect(), "disconnect");
  EXPECT_FALSE(next_event(*w.b.events, std::chrono::milliseconds(20)).has_value());
  log->stuck = false;
  take_event(*w.b.events, ConnectionEvent::Type::kDisconnected);
  EXPECT_EQ(log->all.size(), 30000U);
}

// While the target of a receive or Read says "later", nothing completes; revoked, it fails.
TEST(Placement, AReceiveOrReadWaitsForItsTarget) {
  for (const bool read : {false, true}) {
    for (const bool revoked : {false, true}) {
      World w;
      w.mine.fill_pattern(9);
      const auto log = std::make_shared<Log>();
      log->stuck = true;
      const auto region =
          must(register_target(*w.host.pd, log, 1U << 20U, 0, Access::kLocalWrite), "register");
      CompletionQueue& cq = read ? *w.b.send_cq : *w.b.recv_cq;
      if (read) {
        post(*w.b.qp, wr_read(7, w.mine.rkey(), w.mine.to()), {sge_of(*region, 5, 90'000)});
      } else {
        post_recv(*w.b.qp, 7, {sge_of(*region, 5, 90'000)});
        post(*w.a.qp, wr_send(1), {w.mine.sge(0, 90'000)});
      }
      ASSERT_TRUE(eventually([&] { return log->calls > 2; }));
      EXPECT_TRUE(quiet(cq));
      if (revoked) must(region->deregister(), "deregister");
      log->stuck = false;
      const WorkCompletion wc = take(cq);
      EXPECT_EQ(wc.wr_id, 7U);
      EXPECT_EQ(wc.status, revoked ? WcStatus::kLocalProtection : WcStatus::kSuccess);
      EXPECT_EQ(log->all, revoked ? std::vector<std::uint8_t>{} : w.mine.copy(0, 90'000));
    }
  }
}

TEST(Placement, AFileIsFlushedWhileOthersWriteOn) {
  const File file;
  const auto target = must(FileTarget::create(file.fd), "target");
  std::atomic<bool> over{false};
  std::atomic<unsigned> placed{0};
  std::thread busy([&] {
    const std::vector<std::uint8_t> octets(65536, 1);
    for (std::uint64_t at = 0; !over; at = (at + octets.size()) % (8U << 20U)) {
      if (target->place(at, octets) == Placed::kTaken) ++placed;
    }
  });
  for (unsigned i = 1; i <= 20; ++i) {
    while (placed < 5 * i) std::this_thread::yield();
    EXPECT_EQ(target->flush(), 0);
  }
  over = true;
  busy.join();
}

TEST(Placement, AFileThatCannotBeWrittenEndsTheConnection) {
  World w;
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const auto target = must(FileTarget::create(full), "target");
  const auto region = must(register_target(*w.host.pd, target, 1U << 20U), "register");
  EXPECT_TRUE(w.write(region->rkey(), 0, 0, 100));
  EXPECT_EQ(target->flush(), ENOSPC);
  EXPECT_FALSE(w.write(region->rkey(), 100, 0, 100));
  EXPECT_EQ(target->flush(), ENOSPC);
  EXPECT_FALSE(FileTarget::create(-1));
  EXPECT_FALSE(FileTarget::create(full, 0, 1));
  close(full);
}

TEST(Placement, AWindowShowsWhatTheModelShows) {
  for (const Config& config : framings()) {
    World w(config);
    w.mine.fill_pattern(5);
    constexpr std::size_t kRow = 1000;
    constexpr std::size_t kRows = 300;
    std::vector<std::uint8_t> real(640UL * 200, 0);
    std::vector<std::uint8_t> naive = real;
    const Surface s{real.data(), 600, 200, 640};
    const auto target = must(WindowTarget::create(kRow, kRows, s), "target");
    const auto region = must(register_target(*w.host.pd, target, target->length()), "register");
    for (const WindowView& view :
         {WindowView{}, WindowView{-300, -50, 10, 20, 500, 100}, WindowView{590, 199}}) {
      must(target->set_view(view), "view");
      ASSERT_TRUE(w.write(region->rkey(), 0, 0, kRow * kRows));
      place_naively(naive, s, kRow, view, 0, w.mine.copy(0, kRow * kRows));
      EXPECT_EQ(real, naive);
    }
  }
}

TEST(Placement, BoundsAndRightsAreThoseOfMemory) {
  const auto refused = [](std::uint64_t to, std::size_t count) {
    World w;
    const auto log = std::make_shared<Log>();
    const auto region = must(register_target(*w.host.pd, log, 100, 1000), "register");
    const bool taken = w.write(region->rkey(), to, 0, count);
    EXPECT_EQ(log->calls, taken ? 1U : 0U);
    return !taken;
  };
  EXPECT_FALSE(refused(1000, 100));
  EXPECT_TRUE(refused(1000, 101));
  EXPECT_TRUE(refused(999, 2));
  EXPECT_TRUE(refused(1100, 1));
  EXPECT_TRUE(refused(~std::uint64_t{0}, 2));
  World w;
  EXPECT_FALSE(register_target(*w.host.pd, nullptr, 10));
  EXPECT_FALSE(register_target(*w.host.pd, std::make_shared<Log>(), 2, ~std::uint64_t{0}));
}

TEST(Placement, EachUseNeedsItsRight) {
  const auto log = std::make_shared<Log>();
  {
    World w;  // a peer reads from it
    const auto region = must(register_target(*w.host.pd, log, 100), "register");
    post(*w.a.qp, wr_read(1, region->rkey(), 0), {w.mine.sge(0, 8)});
    EXPECT_NE(take(*w.a.send_cq).status, WcStatus::kSuccess);
  }
  {
    World w;  // a source
    const auto region = must(register_target(*w.host.pd, log, 100), "register");
    post(*w.a.qp, wr_send(1), {sge_of(*region, 0, 8)});
    EXPECT_EQ(take(*w.a.send_cq).status, WcStatus::kLocalProtection);
  }
  {
    World w;  // a receive
    const auto region = must(register_target(*w.host.pd, log, 100), "register");
    post_recv(*w.b.qp, 1, {sge_of(*region, 0, 8)});
    post(*w.a.qp, wr_send(1), {w.mine.sge(0, 8)});
    EXPECT_EQ(take(*w.b.recv_cq).status, WcStatus::kLocalProtection);
  }
  {
    World w;  // the sink of a Read
    const auto region = must(register_target(*w.host.pd, log, 100), "register");
    post(*w.a.qp, wr_read(1, w.mine.rkey(), w.mine.to()), {sge_of(*region, 0, 8)});
    EXPECT_EQ(take(*w.a.send_cq).status, WcStatus::kLocalProtection);
  }
  {
    World w;  // the old value of an atomic: never
    const auto region =
        must(register_target(*w.host.pd, log, 100, 0, Access::kLocalWrite), "register");
    post(*w.a.qp, wr_fetch_add(1, w.mine.rkey(), w.mine.to(), 1), {sge_of(*region, 0, 8)});
    EXPECT_EQ(take(*w.a.send_cq).status, WcStatus::kLocalProtection);
  }
  {
    World w;  // what this side may do, its peer may not
    const auto region =
        must(register_target(*w.host.pd, log, 100, 0, Access::kLocalWrite), "register");
    EXPECT_FALSE(w.write(region->rkey(), 0, 0, 8));
  }
  World w;
  const auto region = must(register_target(*w.host.pd, log, 100), "register");
  const Access all = kAllAccess;
  EXPECT_FALSE(region->reregister(nullptr, nullptr, 0, &all));
  EXPECT_FALSE(region->reregister(nullptr, w.mine.data(), 8, nullptr));
  EXPECT_EQ(log->calls, 0U);
}

TEST(Placement, ReceivesAndReadsOutsideTheRangeFail) {
  for (const auto& [to, count] : {std::pair{99UL, 8UL}, {100UL, 101UL}, {200UL, 1UL}}) {
    const auto log = std::make_shared<Log>();
    World w;
    const auto region =
        must(register_target(*w.host.pd, log, 100, 100, Access::kLocalWrite), "register");
    post_recv(*w.b.qp, 1, {sge_of(*region, to, count)});
    post(*w.a.qp, wr_send(1), {w.mine.sge(0, count)});
    EXPECT_EQ(take(*w.b.recv_cq).status, WcStatus::kLocalProtection) << to;
    World v;
    const auto other =
        must(register_target(*v.host.pd, log, 100, 100, Access::kLocalWrite), "register");
    post(*v.a.qp, wr_read(1, v.mine.rkey(), v.mine.to()), {sge_of(*other, to, count)});
    EXPECT_EQ(take(*v.a.send_cq).status, WcStatus::kLocalProtection) << to;
    EXPECT_EQ(log->calls, 0U);
  }
}

TEST(Placement, ATargetThatRefusesFailsTheReceiveOrRead) {
  const auto log = std::make_shared<Log>();
  log->refuses = true;
  {
    World w;
    const auto region =
        must(register_target(*w.host.pd, log, 100, 0, Access::kLocalWrite), "register");
    post_recv(*w.b.qp, 1, {sge_of(*region, 0, 8)});
    post(*w.a.qp, wr_send(1), {w.mine.sge(0, 8)});
    EXPECT_EQ(take(*w.b.recv_cq).status, WcStatus::kLocalProtection);
  }
  World w;
  const auto region =
      must(register_target(*w.host.pd, log, 100, 0, Access::kLocalWrite), "register");
  post(*w.a.qp, wr_read(1, w.mine.rkey(), w.mine.to()), {sge_of(*region, 0, 8)});
  EXPECT_EQ(take(*w.a.send_cq).status, WcStatus::kLocalProtection);
}

TEST(Placement, ATargetThatRefusesEndsTheConnection) {
  World w;
  const auto log = std::make_shared<Log>();
  log->refuses = true;
  const auto region = must(register_target(*w.host.pd, log, 100), "register");
  EXPECT_FALSE(w.write(region->rkey(), 0, 0, 10));
  EXPECT_EQ(log->calls, 1U);
}

TEST(Placement, NothingIsCalledAfterDeregistrationHasReturned) {
  for (const Config& config : framings()) {
    World w(config);
    const auto log = std::make_shared<Log>();
    const auto region = must(register_target(*w.host.pd, log, 1U << 20U), "register");
    const std::uint32_t rkey = region->rkey();
    std::thread writer([&w, rkey] {
      EXPECT_TRUE(eventually([&] {
        SendWr wr = wr_write(0, rkey, 0);
        const Sge sge = w.mine.sge(0, 40000);
        wr.sges = std::span(&sge, 1);
        for (int i = 0; i < 20; ++i) (void)w.a.qp->post_send(wr);
        WorkCompletion wc;
        while (w.a.send_cq->poll(std::span(&wc, 1)) == 1) continue;
        return w.a.qp->state() == QpState::kError;
      }));
    });
    EXPECT_TRUE(eventually([&] { return log->calls > 0; }));
    must(region->deregister(), "deregister");
    const unsigned calls = log->calls;
    writer.join();
    EXPECT_EQ(log->calls, calls);
  }
}

// Each row comes in an FPDU of its own, so it is all at the old place or all at the new one.
TEST(Placement, AWindowThatMovesTearsNoRow) {
  World w;
  constexpr std::size_t kRow = 500;
  constexpr std::size_t kRows = 100;
  std::vector<std::uint8_t> surface(2 * kRow * kRows, 0);
  const auto target = must(
      WindowTarget::create(kRow, kRows, {surface.data(), 2 * kRow, kRows, 2 * kRow}), "target");
  const auto region = must(register_target(*w.host.pd, target, target->length()), "register");
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    for (std::int64_t i = 0; !stop; ++i) {
      WindowView view;
      view.x = i % 2 * static_cast<std::int64_t>(kRow);
      must(target->set_view(view), "view");
    }
  });
  for (unsigned round = 1; round <= 20; ++round) {
    std::ranges::fill(w.mine.bytes(), static_cast<std::uint8_t>(round));
    for (std::size_t row = 0; row < kRows; ++row) {
      post(*w.a.qp, wr_write(row, region->rkey(), row * kRow), {w.mine.sge(0, kRow)});
    }
    for (const WorkCompletion& wc : take_n(*w.a.send_cq, kRows)) {
      EXPECT_EQ(wc.status, WcStatus::kSuccess);
    }
    // Completions of Writes say nothing about the other side; this does.
    ASSERT_TRUE(w.write(region->rkey(), 0, 0, kRow));
  }
  stop = true;
  mover.join();
  for (std::size_t half = 0; half < 2 * kRows; ++half) {
    const auto* from = surface.data() + half * kRow;
    EXPECT_TRUE(std::all_of(from, from + kRow, [&](std::uint8_t b) { return b == *from; })) << half;
  }
}

}  // namespace
}  // namespace weft::test
