// The set-ID bits of a file that a client may not give, and that go when it writes to the file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "files/protocol/file_attributes.h"
#include "files/protocol/tree.h"
#include "os/fd.h"

namespace {
std::function<void()> while_it_is_made_shorter;
int fchmod_fails = 0;  // with this error, if it is not 0
}  // namespace

// In front of the C library's.
extern "C" int truncate(const char* file, off_t size) noexcept {
  const auto result = static_cast<int>(syscall(SYS_truncate, file, size));
  if (while_it_is_made_shorter) while_it_is_made_shorter();
  return result;
}

extern "C" int fchmod(int fd, mode_t mode) noexcept {
  if (fchmod_fails == 0) return static_cast<int>(syscall(SYS_fchmod, fd, mode));
  errno = fchmod_fails;
  return -1;
}

namespace weft::files {
namespace {

class SetIdBits : public testing::Test {
 protected:
  SetIdBits() {
    std::string name = testing::TempDir() + "weft-set-ids-XXXXXX";
    folder_ = mkdtemp(name.data());
    file_ = os::Fd(open((folder_ + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0700));
  }
  ~SetIdBits() override {
    while_it_is_made_shorter = nullptr;
    fchmod_fails = 0;
    std::filesystem::remove_all(folder_);
  }
  SetIdBits(const SetIdBits&) = delete;
  SetIdBits& operator=(const SetIdBits&) = delete;

  void begin(mode_t mode) const { EXPECT_EQ(fchmod(file_.get(), mode), 0); }
  [[nodiscard]] mode_t mode() const {
    struct stat s {};
    EXPECT_EQ(fstat(file_.get(), &s), 0);
    return s.st_mode & 07777U;
  }
  [[nodiscard]] int fd() const { return file_.get(); }
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  os::Fd file_;
};

TEST_F(SetIdBits, GoWithAWrite) {
  begin(06755);
  EXPECT_EQ(drop_set_ids(fd()), 0);
  EXPECT_EQ(mode(), 0755U);
  begin(02745);
  EXPECT_EQ(drop_set_ids(fd()), 0);
  EXPECT_EQ(mode(), 02745U) << "no program of its group";
}

TEST_F(SetIdBits, OfTheGroupDoNotComeBackByItsRightToExecute) {
  begin(02745);
  EXPECT_EQ(set_permissions(fd(), 02755, false), EPERM);
  EXPECT_EQ(mode(), 02745U);
  EXPECT_EQ(set_permissions(fd(), 02744, false), 0);
  EXPECT_EQ(set_permissions(fd(), 02755, true), 0);
  EXPECT_EQ(set_permissions(fd(), 02711, false), 0);
  EXPECT_EQ(mode(), 02711U);
}

TEST_F(SetIdBits, OfAFolderHaveNothingToDoWithThat) {
  const std::string path = folder() + "/below";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  ASSERT_EQ(chmod(path.c_str(), 02700), 0);
  const os::Fd below(open(path.c_str(), O_PATH | O_CLOEXEC));
  EXPECT_EQ(set_permissions(below.get(), 02750, false), 0);
  struct stat s {};
  EXPECT_EQ(fstat(below.get(), &s), 0);
  EXPECT_EQ(s.st_mode & 07777U, 02750U);
}

TEST_F(SetIdBits, AreNotGivenAnewToAFileThatWasWrittenToMeanwhile) {
  begin(04755);
  const auto tree = Tree::open({folder()}, true);
  ASSERT_TRUE(tree);
  while_it_is_made_shorter = [this] { EXPECT_EQ(drop_set_ids(fd()), 0); };
  Attributes to;
  to.mode = 04755;
  Attributes now;
  EXPECT_EQ(tree->set(TreePath("file"), kSetSize | kSetMode, to, now), EPERM);
  EXPECT_EQ(mode(), 0755U);
}

TEST_F(SetIdBits, ThatDoNotGoRefuseTheWrite) {
  begin(04755);
  fchmod_fails = ENOSPC;
  EXPECT_EQ(drop_set_ids(fd()), ENOSPC);
  fchmod_fails = EPERM;  // the kernel takes them away
  EXPECT_EQ(drop_set_ids(fd()), 0);
}

}  // namespace
}  // namespace weft::files
