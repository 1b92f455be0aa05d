// How a served tree opens files.
#include "files/protocol/tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "files/protocol/open_beneath.h"
#include "os/fd.h"

namespace weft::files {
namespace {

class TreeOpens : public testing::Test {
 protected:
  TreeOpens() {
    std::string name = testing::TempDir() + "weft-tree-XXXXXX";
    folder_ = mkdtemp(name.data());
    const os::Fd file(open((folder_ + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(write(file.get(), "octets", 6), 6);
  }
  ~TreeOpens() override { std::filesystem::remove_all(folder_); }
  TreeOpens(const TreeOpens&) = delete;
  TreeOpens& operator=(const TreeOpens&) = delete;

  [[nodiscard]] Outcome<Tree> tree() const { return Tree::open({folder_}, true); }
  [[nodiscard]] static bool waits(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_NONBLOCK) == 0;
  }

 private:
  std::string folder_;
};

// Where a file system cannot read or write without waiting, io_uring would say EAGAIN of a file
// with O_NONBLOCK.
TEST_F(TreeOpens, FilesWhoseReadsAndWritesWait) {
  const auto tree = this->tree();
  ASSERT_TRUE(tree);
  os::Fd file;
  FileState state;
  ASSERT_EQ(tree->open_file(TreePath("file"), false, false, file, state), 0);
  EXPECT_TRUE(waits(file.get()));
  ASSERT_EQ(tree->edit(TreePath("file"), 0600, 0, file, state), 0);
  EXPECT_TRUE(waits(file.get()));
  std::unique_ptr<Draft> draft;
  std::uint64_t there = 0;
  ASSERT_EQ(tree->draft(TreePath("new"), 6, 1, draft, there), 0);
  EXPECT_TRUE(waits(draft->fd()));
  draft->discard();
}

TEST_F(TreeOpens, FilesPastThePageCacheWhichStaySo) {
  const auto tree = this->tree();
  ASSERT_TRUE(tree);
  os::Fd file;
  FileState state;
  ASSERT_EQ(tree->open_file(TreePath("file"), true, false, file, state), 0);
  EXPECT_TRUE(waits(file.get()));
  const os::Fd before(open(proc_name(file.get()).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  const bool direct = (fcntl(file.get(), F_GETFL) & O_DIRECT) != 0;
  EXPECT_EQ(direct, static_cast<bool>(before)) << "not every file system has it";
}

// Between getting a name of a draft's and its own, a file whose time is old looks like a left-over,
// which goes when somebody lists the folder.
TEST_F(TreeOpens, ANewFileThatNobodyTakesForALeftOver) {
  const auto tree = this->tree();
  ASSERT_TRUE(tree);
  std::unique_ptr<Draft> draft;
  ASSERT_EQ(tree->create(TreePath("new"), 6, draft), 0);
  const os::Fd other(open(proc_name(draft->fd()).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(other);
  EXPECT_NE(flock(other.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(errno, EWOULDBLOCK);
}

}  // namespace
}  // namespace weft::files
