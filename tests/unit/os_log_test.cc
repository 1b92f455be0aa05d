#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "os/log.h"

namespace weft::os {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "weft-log-test." + std::to_string(getpid());
    ASSERT_TRUE(configure_log(LogLevel::kInfo, path_));
  }
  void TearDown() override {
    ASSERT_TRUE(configure_log(LogLevel::kWarning, ""));
    unlink(path_.c_str());
  }
  std::string text() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string path_;
};

TEST_F(LogTest, WritesLinesOfItsLevelAndAboveOnly) {
  log(LogLevel::kInfo, "number {}", 5);
  log(LogLevel::kDebug, "not wanted");
  log(LogLevel::kError, "bad");
  const std::string written = text();
  EXPECT_NE(written.find("info: number 5\n"), std::string::npos) << written;
  EXPECT_NE(written.find("error: bad\n"), std::string::npos) << written;
  EXPECT_EQ(written.find("not wanted"), std::string::npos);
}

TEST_F(LogTest, OffMeansNothingAtAll) {
  ASSERT_TRUE(configure_log(LogLevel::kOff, path_));
  log(LogLevel::kError, "bad");
  EXPECT_EQ(text(), "");
}

TEST_F(LogTest, FileThatCannotBeOpenedIsAnErrorAndChangesNothing) {
  const auto refused = configure_log(LogLevel::kTrace, "/nonexistent/folder/log");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), Error::kSystem);
  EXPECT_FALSE(log_enabled(LogLevel::kTrace));
  log(LogLevel::kInfo, "still here");
  EXPECT_NE(text().find("still here"), std::string::npos);
}

TEST_F(LogTest, FileIsReadableByItsOwnerAlone) {
  struct stat found {};
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST_F(LogTest, SymbolicLinkIsNotFollowed) {
  const std::string link = path_ + ".link";
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_FALSE(configure_log(LogLevel::kInfo, link));
  unlink(link.c_str());
}

TEST_F(LogTest, ChildOfForkLogsToTheSameFile) {
  const pid_t child = fork();
  if (child == 0) {
    log(LogLevel::kInfo, "from the child");
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  log(LogLevel::kInfo, "from the parent");
  EXPECT_NE(text().find("from the child"), std::string::npos);
  EXPECT_NE(text().find("from the parent"), std::string::npos);
}

}  // namespace
}  // namespace weft::os
