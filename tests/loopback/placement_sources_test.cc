// Placement targets as sources of Sends, Writes and Reads: octets that are fetched when they are
// due, from a function, a surface or a file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/placement.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <thread>

#include "support/weft_side.h"

namespace weft::test {
namespace {

constexpr std::size_t kBytes = 700'000;

std::uint64_t seed() {
  const char* text = std::getenv("WEFT_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : std::random_device{}();
}

std::uint8_t octet_at(std::uint64_t offset) {
  return static_cast<std::uint8_t>(offset * 7 + offset / 251);
}

std::vector<std::uint8_t> octets_from(std::uint64_t offset, std::size_t count) {
  std::vector<std::uint8_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = octet_at(offset + i);
  return out;
}

// Gives octet_at() of each offset.
class Giver final : public PlacementTarget {
 public:
  Placed place(std::uint64_t, std::span<const std::uint8_t>) noexcept override {
    return Placed::kTaken;
  }
  [[nodiscard]] bool gives() const noexcept override { return true; }
  Placed fetch(std::uint64_t offset, std::span<std::uint8_t> octets) noexcept override {
    ++calls;
    std::fill(octets.begin(), octets.end(), std::uint8_t{0xbd});  // nothing of this may be sent
    if (stuck || (every != 0 && calls % every != 0)) return Placed::kLater;
    if (refuses) return Placed::kRefused;
    for (std::size_t i = 0; i < octets.size(); ++i) octets[i] = octet_at(offset + i);
    return Placed::kTaken;
  }
  unsigned every = 0;  // gives every so many-th time only
  std::atomic<unsigned> calls{0};
  std::atomic<bool> stuck{false};
  bool refuses = false;
};

// Takes what it is given, and gives nothing.
class Sink final : public PlacementTarget {
 public:
  Placed place(std::uint64_t, std::span<const std::uint8_t>) noexcept override {
    return Placed::kTaken;
  }
};

// `a` writes and sends to `b`, and reads from it.
struct World : Pair {
  explicit World(const Config& config = plain_config()) : Pair(config), to(host, 1U << 20U) {}
  WcStatus write(std::initializer_list<Sge> from, std::size_t at) {
    post(*a.qp, wr_write(1, to.rkey(), to.to() + at), from);
    return take(*a.send_cq).status;
  }
  // What was written is there once a Read behind it is answered.
  bool settle() {
    Memory probe(host, 8);
    post(*a.qp, wr_read(2, to.rkey(), to.to()), {probe.sge()});
    return take(*a.send_cq).status == WcStatus::kSuccess;
  }
  WcStatus read(const MemoryRegion& region, std::uint64_t from, std::size_t at, std::size_t count) {
    post(*a.qp, wr_read(3, region.rkey(), from), {to.sge(at, count)});
    return take(*a.send_cq).status;
  }
  std::shared_ptr<MemoryRegion> give(std::shared_ptr<PlacementTarget> target, std::uint64_t length,
                                     std::uint64_t iova = 0) {
    return must(register_target(*host.pd, std::move(target), length, iova, Access::kRemoteRead),
                "register");
  }
  Memory to;
};

Sge sge_of(const MemoryRegion& region, std::uint64_t to, std::size_t count) {
  return {.addr = to, .length = static_cast<std::uint32_t>(count), .lkey = region.lkey()};
}

TEST(PlacementSources, AWriteTakesItsOctetsFromTheTarget) {
  for (const unsigned every : {0U, 3U}) {
    for (const Config& config : framings()) {
      World w(config);
      const auto giver = std::make_shared<Giver>();
      giver->every = every;
      const auto region = w.give(giver, kBytes, 1000);
      for (const std::size_t count : {1UL, 8UL, 1023UL, 1024UL, 65'536UL, kBytes}) {
        ASSERT_EQ(w.write({sge_of(*region, 1000 + kBytes - count, count)}, 5), WcStatus::kSuccess);
        ASSERT_TRUE(w.settle());
        ASSERT_EQ(w.to.copy(5, count), octets_from(kBytes - count, count)) << count;
      }
    }
  }
}

TEST(PlacementSources, TargetsAndMemoryMixInOneMessage) {
  for (const Config& config : framings()) {
    World w(config);
    Memory mine(w.host, 200'000);
    mine.fill_pattern(3);
    const auto giver = std::make_shared<Giver>();
    giver->every = 2;
    const auto region = w.give(giver, kBytes);
    ASSERT_EQ(w.write({mine.sge(0, 100), sge_of(*region, 77, 100'000), mine.sge(100, 150'000),
                       sge_of(*region, 5, 3)},
                      0),
              WcStatus::kSuccess);
    ASSERT_TRUE(w.settle());
    auto want = mine.copy(0, 100);
    const auto append = [&](const std::vector<std::uint8_t>& more) {
      want.insert(want.end(), more.begin(), more.end());
    };
    append(octets_from(77, 100'000));
    append(mine.copy(100, 150'000));
    append(octets_from(5, 3));
    EXPECT_EQ(w.to.copy(0, want.size()), want);
  }
}

TEST(PlacementSources, ASendTakesItsOctetsFromTheTarget) {
  for (const std::size_t count : {8UL, 100'000UL}) {
    World w;
    const auto giver = std::make_shared<Giver>();
    giver->every = 3;
    const auto region = w.give(giver, kBytes);
    post_recv(*w.b.qp, 9, {w.to.sge(0, 200'000)});
    post(*w.a.qp, wr_send(1), {sge_of(*region, 40, count)});
    EXPECT_EQ(take_success(*w.a.send_cq, 1).status, WcStatus::kSuccess);
    EXPECT_EQ(take_success(*w.b.recv_cq, 9).byte_len, count);
    EXPECT_EQ(w.to.copy(0, count), octets_from(40, count));
  }
}

TEST(PlacementSources, APeerReadsFromTheTarget) {
  for (const Config& config : framings()) {
    World w(config);
    const auto giver = std::make_shared<Giver>();
    giver->every = 2;
    const auto region = w.give(giver, kBytes, 5000);
    for (const std::size_t count : {1UL, 1000UL, 300'000UL}) {
      ASSERT_EQ(w.read(*region, 5003, 11, count), WcStatus::kSuccess);
      ASSERT_EQ(w.to.copy(11, count), octets_from(3, count));
    }
  }
}

// Requests behind the one that waits keep their order, and those of other connections go on.
TEST(PlacementSources, OnlyItsOwnConnectionWaitsForATarget) {
  World w;
  Pair other;
  const auto giver = std::make_shared<Giver>();
  giver->stuck = true;
  const auto region = w.give(giver, kBytes);
  Memory mine(w.host, 64);
  mine.fill_pattern(8);
  post(*w.a.qp, wr_write(1, w.to.rkey(), w.to.to()), {sge_of(*region, 0, 100'000)});
  post(*w.a.qp, wr_write(2, w.to.rkey(), w.to.to() + 99'990), {mine.sge(0, 20)});
  while (giver->calls < 3) std::this_thread::yield();
  Memory far(other.host, 64);
  post(*other.a.qp, wr_write(7, far.rkey(), far.to()), {far.sge(0, 8)});
  EXPECT_EQ(take_success(*other.a.send_cq, 7).status, WcStatus::kSuccess);
  giver->stuck = false;
  EXPECT_EQ(take_success(*w.a.send_cq, 1).status, WcStatus::kSuccess);
  EXPECT_EQ(take_success(*w.a.send_cq, 2).status, WcStatus::kSuccess);
  ASSERT_TRUE(w.settle());
  EXPECT_EQ(w.to.copy(0, 99'990), octets_from(0, 99'990));
  EXPECT_EQ(w.to.copy(99'990, 20), mine.copy(0, 20));
}

TEST(PlacementSources, ARequestThatWaitsIsFlushedOnce) {
  World w;
  const auto giver = std::make_shared<Giver>();
  giver->stuck = true;
  const auto region = w.give(giver, kBytes);
  post(*w.a.qp, wr_write(1, w.to.rkey(), w.to.to()), {sge_of(*region, 0, 100'000)});
  while (giver->calls < 2) std::this_thread::yield();
  must(w.b.connection->disconnect(), "disconnect");
  EXPECT_EQ(take(*w.a.send_cq).status, WcStatus::kFlushed);
  must(region->deregister(), "deregister");
  const unsigned calls = giver->calls;
  EXPECT_FALSE(w.settle());
  EXPECT_EQ(giver->calls, calls);
}

TEST(PlacementSources, ATargetThatRefusesFailsTheRequest) {
  const auto giver = std::make_shared<Giver>();
  giver->refuses = true;
  {
    World w;
    const auto region = w.give(giver, kBytes);
    EXPECT_EQ(w.write({sge_of(*region, 0, 8)}, 0), WcStatus::kLocalProtection);
  }
  {
    World w;
    const auto region = w.give(giver, kBytes);
    EXPECT_NE(w.read(*region, 0, 0, 100'000), WcStatus::kSuccess);
  }
}

TEST(PlacementSources, RightsAndBoundsAreThoseOfMemory) {
  const auto giver = std::make_shared<Giver>();
  for (const auto& [to, count] : {std::pair{99UL, 8UL}, {100UL, 101UL}, {200UL, 1UL}}) {
    World w;
    const auto region = w.give(giver, 100, 100);
    EXPECT_EQ(w.write({sge_of(*region, to, count)}, 0), WcStatus::kLocalProtection) << to;
    World v;
    EXPECT_NE(v.read(*v.give(giver, 100, 100), to, 0, count), WcStatus::kSuccess) << to;
  }
  {
    World w;  // no right for peers
    const auto region = must(register_target(*w.host.pd, giver, 100), "register");
    EXPECT_EQ(region->access(), Access::kRemoteWrite);
    EXPECT_NE(w.read(*region, 0, 0, 8), WcStatus::kSuccess);
  }
  EXPECT_EQ(giver->calls, 0U);
  World w;
  const auto sink = std::make_shared<Sink>();
  EXPECT_FALSE(register_target(*w.host.pd, sink, 10, 0, Access::kRemoteRead));
  EXPECT_FALSE(register_target(*w.host.pd, giver, 10, 0, Access::kBindWindow));
  EXPECT_FALSE(register_target(*w.host.pd, giver, 10, 0, Access::kRemoteAtomic));
  EXPECT_TRUE(register_target(*w.host.pd, giver, 10, 0, Access::kNone));
  const auto region = must(register_target(*w.host.pd, sink, 10), "register");
  EXPECT_EQ(w.write({sge_of(*region, 0, 8)}, 0), WcStatus::kLocalProtection);
}

TEST(PlacementSources, AWindowGivesWhatIsVisibleAndZeros) {
  std::mt19937_64 random(seed());
  Surface s;
  s.row_bytes = 50;
  s.rows = 30;
  s.pitch = 61;
  std::vector<std::uint8_t> memory(s.pitch * s.rows);
  for (auto& octet : memory) octet = static_cast<std::uint8_t>(random());
  s.first = memory.data();
  const auto window = must(WindowTarget::create(40, 20, s), "window");
  for (int round = 0; round < 100; ++round) {
    WindowView v;
    v.x = static_cast<std::int64_t>(random() % 100) - 50;
    v.y = static_cast<std::int64_t>(random() % 60) - 30;
    v.clip_x = random() % 30;
    v.clip_y = random() % 20;
    v.clip_width = random() % 50;
    v.clip_rows = random() % 30;
    must(window->set_view(v), "view");
    const std::size_t offset = random() % 800;
    std::vector<std::uint8_t> got(random() % (801 - offset));
    ASSERT_EQ(window->fetch(offset, got), Placed::kTaken);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::int64_t x = v.x + static_cast<std::int64_t>((offset + i) % 40);
      const std::int64_t y = v.y + static_cast<std::int64_t>((offset + i) / 40);
      const auto within = [](std::int64_t at, std::size_t from, std::size_t count,
                             std::size_t limit) {
        const auto first = static_cast<std::int64_t>(from);
        return at >= first && at < static_cast<std::int64_t>(limit) &&
               at - first < static_cast<std::int64_t>(count);
      };
      const bool visible = within(x, v.clip_x, v.clip_width, s.row_bytes) &&
                           within(y, v.clip_y, v.clip_rows, s.rows);
      const std::uint8_t want =
          visible ? memory[static_cast<std::size_t>(y) * s.pitch + static_cast<std::size_t>(x)] : 0;
      ASSERT_EQ(got[i], want) << "round " << round << ", octet " << i;
    }
  }
  std::vector<std::uint8_t> beyond(6);
  EXPECT_EQ(window->fetch(795, beyond), Placed::kRefused);
}

TEST(PlacementSources, ALayoutIsSentRowByRow) {
  World w;
  std::vector<std::uint8_t> memory(300UL * 1000);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = octet_at(i);
  const auto layout = must(WindowTarget::layout({memory.data(), 200, 1000, 300}), "layout");
  const auto region = w.give(layout, layout->length());
  ASSERT_EQ(w.write({sge_of(*region, 0, 200'000)}, 0), WcStatus::kSuccess);
  ASSERT_TRUE(w.settle());
  const auto got = w.to.copy(0, 200'000);
  for (std::size_t row = 0; row < 1000; ++row) {
    ASSERT_TRUE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(row * 200),
                           got.begin() + static_cast<std::ptrdiff_t>(row * 200 + 200),
                           memory.begin() + static_cast<std::ptrdiff_t>(row * 300)))
        << row;
  }
}

// On a disk, so that what is read may not be in memory yet.
struct DiskFile {
  explicit DiskFile(std::size_t bytes) {
    char name[] = "placement-source-XXXXXX";
    fd = mkostemp(name, O_CLOEXEC);
    unlink(name);
    const auto all = octets_from(0, bytes);
    EXPECT_EQ(write(fd, all.data(), all.size()), static_cast<ssize_t>(all.size()));
    fsync(fd);
  }
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  ~DiskFile() { close(fd); }
  void forget() const { posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }
  int fd = -1;
};

TEST(PlacementSources, AFileIsSentFromTheDiskAndFromThePageCache) {
  std::mt19937_64 random(seed());
  const DiskFile file(kBytes + 4097);
  for (const Config& config : framings()) {
    World w(config);
    const auto target = must(FileTarget::create(file.fd, 4097, 2), "target");
    const auto region = w.give(target, kBytes, 77);
    for (int i = 0; i < 12; ++i) {
      if (i % 2 == 0) file.forget();
      const std::size_t count = 1 + random() % (i % 3 == 0 ? kBytes - 1 : 3000);
      const std::size_t from = random() % (kBytes - count);
      if (i % 4 < 2) {
        ASSERT_EQ(w.write({sge_of(*region, 77 + from, count)}, 3), WcStatus::kSuccess);
        ASSERT_TRUE(w.settle());
      } else {
        ASSERT_EQ(w.read(*region, 77 + from, 3, count), WcStatus::kSuccess);
      }
      ASSERT_EQ(w.to.copy(3, count), octets_from(4097 + from, count));
    }
    EXPECT_EQ(target->read_error(), 0);
  }
}

// Where the system cannot say what is in memory (here /proc), all goes by what is read ahead, and
// an FPDU asks for all its ranges again until they are there together.
TEST(PlacementSources, AFileThatIsNeverInThePageCacheGivesSeveralRangesToOneFpdu) {
  World w;
  const auto all = octets_from(0, 2U << 20U);
  const int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  {
    const auto target =
        must(FileTarget::create(fd, reinterpret_cast<std::uint64_t>(all.data())), "target");
    const auto region = w.give(target, all.size());
    const std::size_t distance = 700'001;  // more than is read at once
    ASSERT_EQ(w.write({sge_of(*region, 0, 100), sge_of(*region, distance, 200),
                       sge_of(*region, 2 * distance, 50)},
                      3),
              WcStatus::kSuccess);
    ASSERT_TRUE(w.settle());
    EXPECT_EQ(w.to.copy(3, 100), octets_from(0, 100));
    EXPECT_EQ(w.to.copy(103, 200), octets_from(distance, 200));
    EXPECT_EQ(w.to.copy(303, 50), octets_from(2 * distance, 50));
    EXPECT_EQ(target->read_error(), 0);
  }
  close(fd);
}

TEST(PlacementSources, AFileThatBecameShorterFailsTheRequestAndSaysWhy) {
  for (const bool local : {true, false}) {
    const DiskFile file(kBytes);
    World w;
    const auto target = must(FileTarget::create(file.fd), "target");
    const auto region = w.give(target, kBytes);
    ASSERT_EQ(ftruncate(file.fd, 100'000), 0);
    if (local) {
      EXPECT_EQ(w.write({sge_of(*region, 0, kBytes)}, 0), WcStatus::kLocalProtection);
    } else {
      EXPECT_NE(w.read(*region, 0, 0, kBytes), WcStatus::kSuccess);
    }
    EXPECT_EQ(target->read_error(), ENODATA);
  }
}

TEST(PlacementSources, AFileThatCannotBeReadFailsTheRequest) {
  World w;
  const int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  {
    const auto target = must(FileTarget::create(fd), "target");
    const auto region = w.give(target, 100);
    EXPECT_EQ(w.write({sge_of(*region, 0, 100)}, 0), WcStatus::kLocalProtection);
    EXPECT_EQ(target->read_error(), EISDIR);
  }
  close(fd);
}

}  // namespace
}  // namespace weft::test
