// Files of records, as a process writes them.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "check/module/record_file.h"
#include "timeline/story.h"

namespace weft::check {
namespace {

using timeline::Call;
using timeline::FileHeader;
using timeline::kHeaderBytes;
using timeline::Octets64;
using timeline::Story;

constexpr std::size_t kPiece = 1U << 20U;
constexpr std::size_t kOfPiece = kPiece / sizeof(Octets64);

class TimelineFile : public ::testing::Test {
 protected:
  TimelineFile() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~TimelineFile() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return folder_ + "/one.weft"; }
  [[nodiscard]] std::unique_ptr<RecordFile> open(std::size_t most) const {
    return RecordFile::open(path(), FileHeader{}, most);
  }
  static void write(RecordFile& file, std::uint64_t from, std::uint64_t to) {
    for (; from < to; ++from) {
      Call call;
      call.start = from;
      file.write(std::bit_cast<Octets64>(call));
    }
  }
  [[nodiscard]] Story story() const {
    std::ifstream in(path(), std::ios::binary);
    const std::vector<char> octets{std::istreambuf_iterator<char>(in), {}};
    Story out;
    EXPECT_FALSE(timeline::add_file(
        out, {reinterpret_cast<const std::uint8_t*>(octets.data()), octets.size()}));
    return out;
  }
  [[nodiscard]] std::uintmax_t size() const { return std::filesystem::file_size(path()); }

 private:
  std::string folder_ = "/tmp/weft-timeline-XXXXXX";
};

TEST_F(TimelineFile, IsAsLongAsItsRecordsNeed) {
  const auto file = open(1U << 20U);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(size(), kHeaderBytes);
  write(*file, 0, 3);
  EXPECT_EQ(size(), kHeaderBytes + kPiece);
  write(*file, 3, kOfPiece + 1);
  EXPECT_EQ(size(), kHeaderBytes + 2 * kPiece);
  const Story found = story();
  EXPECT_EQ(found.calls.size(), kOfPiece + 1);
  EXPECT_EQ(found.processes.front().dropped, 0U);
}

TEST_F(TimelineFile, KeepsTheLastRecords) {
  const auto file = open(100);
  ASSERT_NE(file, nullptr);
  write(*file, 0, 250);
  const Story found = story();
  ASSERT_EQ(found.calls.size(), 100U);
  for (const auto& one : found.calls) EXPECT_GE(one.call.start, 150U);
  EXPECT_EQ(found.processes.front().dropped, 150U);
  EXPECT_EQ(found.processes.front().capacity, 100U);
}

TEST_F(TimelineFile, SaysHowManyRecordsOfItsProcessHaveNoFile) {
  const auto file = open(100);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(story().processes.front().without_file, 0U);
  file->set_lost(3);
  file->set_lost(7);
  write(*file, 0, 2);
  EXPECT_EQ(story().processes.front().without_file, 7U);
  EXPECT_EQ(story().processes.front().dropped, 0U);
}

TEST_F(TimelineFile, OneThatCannotBeMappedIsNotLeftThere) {
  EXPECT_EQ(open(std::size_t{1} << 41U), nullptr);  // 2^47 octets
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(TimelineFile, OneThatCannotGrowKeepsAsManyAsItHasAndSaysSoOnce) {
  const auto file = open(1U << 20U);
  ASSERT_NE(file, nullptr);
  write(*file, 0, kOfPiece);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = kPiece + kPiece / 2;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ::testing::internal::CaptureStderr();
  write(*file, kOfPiece, 2 * kOfPiece + 5);
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(said, "weft: --timeline: " + path() + ": File too large: records are lost\n");
  const Story found = story();
  ASSERT_EQ(found.calls.size(), kOfPiece);
  EXPECT_EQ(found.processes.front().dropped, kOfPiece + 5);
  for (const auto& one : found.calls) EXPECT_GE(one.call.start, kOfPiece + 5);
}

}  // namespace
}  // namespace weft::check
