// Attributes by which files and their versions are told apart.
#include "files/protocol/file_attributes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "os/clock.h"
#include "os/fd.h"

namespace {
useconds_t held_up_us = 0;  // whoever has looked at a file
}

// In front of the C library's.
extern "C" int statx(int at, const char* name, int how, unsigned what, struct statx* out) {
  const auto result = static_cast<int>(syscall(SYS_statx, at, name, how, what, out));
  if (held_up_us != 0) usleep(held_up_us);
  return result;
}

namespace weft::files {
namespace {

class FileStates : public testing::Test {
 protected:
  FileStates() {
    std::string name = testing::TempDir() + "weft-states-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~FileStates() override { std::filesystem::remove_all(folder_); }
  FileStates(const FileStates&) = delete;
  FileStates& operator=(const FileStates&) = delete;

  [[nodiscard]] std::string path(const char* name) const { return folder_ + "/" + name; }
  [[nodiscard]] os::Fd open(const char* name, int how = O_RDWR | O_CREAT) const {
    return os::Fd(::open(path(name).c_str(), how | O_CLOEXEC, 0600));
  }
  static FileState of(const os::Fd& fd) {
    int error = 0;
    const FileState out = state_of(fd.get(), &error);
    EXPECT_EQ(error, 0);
    return out;
  }

 private:
  std::string folder_;
};

TEST_F(FileStates, AnObjectHasOneIdUnderEveryNameAndDescriptor) {
  const os::Fd file = open("file");
  const FileState first = of(file);
  ASSERT_EQ(link(path("file").c_str(), path("other").c_str()), 0);
  ASSERT_EQ(rename(path("file").c_str(), path("new").c_str()), 0);
  EXPECT_EQ(of(open("other", O_PATH)).object, first.object);
  EXPECT_EQ(of(open("new", O_RDONLY)).object, first.object);
  ASSERT_EQ(write(file.get(), "x", 1), 1);
  EXPECT_EQ(of(file).object, first.object);
}

// The file system decides whether it gives numbers again; where it does, they are other files.
TEST_F(FileStates, AnotherFileWithTheNumberOfARemovedOneHasAnotherId) {
  FileState before;
  for (int i = 0; i < 200; ++i) {
    const FileState now = of(open("file"));
    ASSERT_EQ(unlink(path("file").c_str()), 0);
    EXPECT_NE(now.object, before.object) << i;
    before = now;
  }
}

TEST_F(FileStates, HasALevelOnceItsLastChangeIsOldEnough) {
  const os::Fd file = open("file");
  ASSERT_EQ(write(file.get(), "x", 1), 1);
  FileState state = of(file);
  const std::int64_t until = os::clock_ns(CLOCK_MONOTONIC) + 60 * os::kNsPerSecond;
  while (state.level == kLevelNone && os::clock_ns(CLOCK_MONOTONIC) < until) {
    usleep(1000);
    state = of(file);
  }
  ASSERT_EQ(state.level, kLevelTimes);
  EXPECT_TRUE(same_token(state, of(file)));
  ASSERT_EQ(pwrite(file.get(), "y", 1, 0), 1);
  EXPECT_FALSE(same_token(state, of(file)));
  EXPECT_EQ(of(file).level, kLevelNone);
  // Somebody sets the time of the last change back.
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(state.attributes.mtime_ns)};
  ASSERT_EQ(futimens(file.get(), times), 0);
  EXPECT_FALSE(same_token(state, of(file)));
}

// A change while it was held up may have the time that was seen.
TEST_F(FileStates, HasNoLevelWhereTheLookerWasHeldUp) {
  const os::Fd file = open("file");
  held_up_us = 50000;
  int found = 0;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(write(file.get(), "x", 1), 1);
    found += of(file).level == kLevelNone ? 1 : 0;
  }
  held_up_us = 0;
  // The write itself may have been held up, though hardly each time.
  EXPECT_GT(found, 0);
}

TEST_F(FileStates, AreFreshForSecondsWhereTimesCountSeconds) {
  const os::Fd file = open("file");
  constexpr std::int64_t kChanged = 1'600'000'000 * os::kNsPerSecond;
  constexpr std::int64_t kMs = 1'000'000;
  EXPECT_TRUE(is_fresh(file.get(), kChanged, kChanged + 2000 * kMs));
  EXPECT_TRUE(is_fresh(file.get(), kChanged, kChanged - 2000 * kMs));
  EXPECT_FALSE(is_fresh(file.get(), kChanged, kChanged + 2020 * kMs));
  EXPECT_FALSE(is_fresh(file.get(), kChanged + 1, kChanged + 2021 * kMs));
}

TEST_F(FileStates, AttributesAreThoseOfStat) {
  const os::Fd file = open("file");
  ASSERT_EQ(ftruncate(file.get(), 100000), 0);
  ASSERT_EQ(link(path("file").c_str(), path("other").c_str()), 0);
  struct stat s {};
  ASSERT_EQ(fstat(file.get(), &s), 0);
  const Attributes a = of(file).attributes;
  EXPECT_EQ(a.mode, s.st_mode);
  EXPECT_EQ(a.links, 2U);
  EXPECT_EQ(a.uid, s.st_uid);
  EXPECT_EQ(a.gid, s.st_gid);
  EXPECT_EQ(a.size, 100000U);
  EXPECT_EQ(a.blocks, static_cast<std::uint64_t>(s.st_blocks));
  EXPECT_EQ(a.mtime_ns, os::ns_of(s.st_mtim));
  EXPECT_EQ(a.ctime_ns, os::ns_of(s.st_ctim));
}

TEST(FileStatesOfNothing, AreAnError) {
  int error = 0;
  EXPECT_EQ(state_of(-1, &error), FileState());
  EXPECT_EQ(error, EBADF);
}

}  // namespace
}  // namespace weft::files
