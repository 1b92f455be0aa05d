// The means that a session of the data server holds: staging memory, listings and open files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <semaphore>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "files/server/listings.h"
#include "files/server/open_files.h"
#include "files/server/staging_window.h"

namespace weft::files {
namespace {

constexpr std::uint32_t kPiece = 256U << 10U;

struct FakeArea : Port::Area {
  explicit FakeArea(std::size_t bytes) : octets_(bytes) {
    octets = octets_;
    heap = std::make_unique<BlockHeap>(bytes);
  }
  bool starved = false;

 private:
  std::vector<std::uint8_t> octets_;
};

// Takes pieces until it gets no more; how many.
std::size_t take_all(StagingWindow& window, std::vector<readsend::Segment>& out) {
  std::size_t count = 0;
  for (; const auto segment = window.take(kPiece); ++count) out.push_back(*segment);
  return count;
}

TEST(StagingWindow, GivesEverybodyOneSegmentHoweverShortMemoryIs) {
  FakeArea area(std::size_t{16} * kPiece);
  StagingWindow first(area, area.starved), second(area, area.starved), third(area, area.starved);
  std::vector<readsend::Segment> held;
  // Half of it, then as much as its window says, then what is not kept for others.
  EXPECT_EQ(take_all(first, held), 8U);
  EXPECT_EQ(take_all(second, held), 4U);
  EXPECT_EQ(take_all(third, held), 2U);
  StagingWindow modest(area, area.starved), last(area, area.starved);
  EXPECT_EQ(take_all(modest, held), 1U);
  EXPECT_EQ(modest.held_bytes(), kPiece);
  EXPECT_EQ(take_all(last, held), 1U);
  EXPECT_FALSE(area.starved);
}

TEST(StagingWindow, TellsThatWhoHoldsNothingGotNothing) {
  FakeArea area(kPiece);
  StagingWindow first(area, area.starved), second(area, area.starved);
  const auto segment = first.take(kPiece);
  ASSERT_TRUE(segment);
  EXPECT_FALSE(second.take(kPiece));
  EXPECT_TRUE(area.starved);
  first.give_back(*segment);
  EXPECT_TRUE(second.take(kPiece));
  EXPECT_FALSE(area.starved);
}

TEST(StagingWindow, FollowsWhatItsClientDrains) {
  FakeArea area(std::size_t{256} * kPiece);
  StagingWindow window(area, area.starved);
  const auto start = Clock::now();
  ASSERT_TRUE(window.take(kPiece));
  window.drained(1000, start + std::chrono::hours(1));
  EXPECT_EQ(window.bytes(), StagingWindow::kLeastBytes);
  window.drained(1U << 30U, start + std::chrono::hours(1) + std::chrono::milliseconds(1));
  EXPECT_EQ(window.bytes(), StagingWindow::kLeastBytes);  // too early to tell
  window.drained(1, start + std::chrono::hours(1) + std::chrono::milliseconds(20));
  EXPECT_EQ(window.bytes(), StagingWindow::kMostBytes);
}

TEST(StagingWindow, GivesAllBackWhenItGoes) {
  FakeArea area(std::size_t{64} * kPiece);
  {
    StagingWindow window(area, area.starved);
    std::vector<readsend::Segment> held;
    EXPECT_GT(take_all(window, held), 1U);
    EXPECT_EQ(area.held_bytes, window.held_bytes());
  }
  EXPECT_EQ(area.held_bytes, 0U);
  EXPECT_EQ(area.heap->stats().segments, 0U);
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/weft-session-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] os::Fd make(const std::string& name) const {
    return os::Fd(::open((path_ + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }

 private:
  std::string path_;
};

struct ListingsTest : testing::Test {
  ListingsTest() {
    for (int i = 0; i < 40; ++i) static_cast<void>(folder.make("name" + std::to_string(i)));
    tree = std::move(*Tree::open({folder.path()}, false));
  }
  // One page, of a few names; its error.
  int fill(std::uint64_t cursor) {
    ListRequest request;
    request.cursor = cursor;
    reply = ListReply();
    return listings.fill(tree, request, reply, std::span(room).first(500), *disposal);
  }
  Folder folder;
  Tree tree;
  std::unique_ptr<Background> disposal = Background::create(1);
  FakeArea area{std::size_t{3} * Listings::kPageBytes};
  Listings listings{area, area.starved};
  ListReply reply;
  std::vector<std::uint8_t> room = std::vector<std::uint8_t>(Listings::kPageBytes);
};

TEST_F(ListingsTest, GoOnWhereAPageEnded) {
  std::set<std::string> names;
  std::uint64_t cursor = 0;
  do {
    ASSERT_EQ(fill(cursor), 0);
    std::span<const std::uint8_t> in(room.data(), reply.bytes);
    while (const auto entry = decode_entry(in)) names.emplace(entry->name);
    cursor = reply.cursor;
    EXPECT_EQ(listings.folders(), cursor == 0 ? 0U : 1U);
  } while (cursor != 0);
  EXPECT_EQ(names.size(), 40U);
}

TEST_F(ListingsTest, CloseTheOldestOfTooMany) {
  ASSERT_EQ(fill(0), 0);
  const std::uint64_t first = reply.cursor;
  for (std::size_t i = 0; i < Listings::kMostFolders; ++i) ASSERT_EQ(fill(0), 0);
  EXPECT_EQ(listings.folders(), Listings::kMostFolders);
  listings.close();
  EXPECT_EQ(listings.folders(), 0U);
  EXPECT_EQ(fill(first), ESTALE);
}

TEST_F(ListingsTest, LendFewPagesAndTellWhoGotNone) {
  const auto one = listings.take_page();
  const auto two = listings.take_page();
  ASSERT_TRUE(one && two);
  EXPECT_NE(one->octets.data(), two->octets.data());
  EXPECT_FALSE(listings.take_page());
  EXPECT_FALSE(area.starved);
  Listings other(area, area.starved), third(area, area.starved);
  EXPECT_TRUE(other.take_page());
  EXPECT_FALSE(third.take_page());
  EXPECT_TRUE(area.starved);
  listings.give_back(one->number);
  EXPECT_EQ(listings.pages(), 1U);
  EXPECT_TRUE(third.take_page());
}

TEST(OpenFiles, NeverUseAHandleTwice) {
  const auto background = Background::create(1);
  OpenFiles files(*background, 2);
  const std::uint64_t first = files.add(files.make());
  EXPECT_TRUE(files.have_room(0));
  EXPECT_FALSE(files.have_room(1));
  EXPECT_NE(files.take(first), nullptr);
  EXPECT_EQ(files.take(first), nullptr);
  EXPECT_EQ(files.find(first), nullptr);
  const std::uint64_t second = files.add(files.make());
  EXPECT_NE(second, first);
  EXPECT_NE(files.find(second), nullptr);
}

constexpr off_t kMuch = off_t{8} << 20U;

// Holds up the only thread of a background until it goes.
class Busy {
 public:
  explicit Busy(Background& background) : background_(background) {
    background_.run(std::make_unique<Wait>(*this));
  }
  ~Busy() {
    go_.release();
    while (!done_) background_.progress();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  struct Wait final : Background::Job {
    explicit Wait(Busy& one) : busy(one) {}
    void work() noexcept override { busy.go_.acquire(); }
    void done() override { busy.done_ = true; }
    Busy& busy;
  };
  Background& background_;
  std::binary_semaphore go_{0};
  bool done_ = false;
};

// Whether this process has a file of the folder open that has no name any more.
bool holds_removed(const Folder& folder) {
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(one, gone).string();
    if (name.starts_with(folder.path()) && name.ends_with(" (deleted)")) return true;
  }
  return false;
}

TEST(OpenFiles, FreeTheRoomOfHiddenDraftsInTheBackground) {
  const Folder folder;
  const auto background = Background::create(1);
  {
    const Busy busy(*background);
    OpenFiles files(*background, 2);
    auto file = files.make();
    os::Fd hidden = folder.make(".weft-draft-1");
    ASSERT_EQ(posix_fallocate(hidden.get(), 0, kMuch), 0);
    os::Fd where(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    file->draft =
        std::make_unique<Draft>(std::move(where), "name", std::move(hidden), ".weft-draft-1");
    file.reset();
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    EXPECT_TRUE(holds_removed(folder));
  }
  while (holds_removed(folder)) background->progress();
}

TEST_F(ListingsTest, FreeTheRoomOfOldDraftsInTheBackground) {
  tree = std::move(*Tree::open({folder.path()}, true));
  {
    const os::Fd old = folder.make(".weft-draft-1");
    ASSERT_EQ(posix_fallocate(old.get(), 0, kMuch), 0);
    const timespec times[2] = {{0, UTIME_OMIT}, {1, 0}};
    ASSERT_EQ(futimens(old.get(), times), 0);
  }
  {
    const Busy busy(*disposal);
    std::uint64_t cursor = 0;
    do {
      ASSERT_EQ(fill(cursor), 0);
      cursor = reply.cursor;
    } while (cursor != 0);
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/.weft-draft-1"));
    EXPECT_TRUE(holds_removed(folder));
  }
}

TEST(OpenFiles, StayOpenForTheirLastUser) {
  const Folder folder;
  const auto background = Background::create(1);
  OpenFiles files(*background, 2);
  auto file = files.make();
  file->fd = folder.make("file");
  const int fd = file->get();
  const std::uint64_t handle = files.add(file);
  files.close();
  EXPECT_EQ(files.find(handle), nullptr);
  EXPECT_NE(fcntl(fd, F_GETFD), -1);
  file.reset();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

}  // namespace
}  // namespace weft::files
