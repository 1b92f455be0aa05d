// When the kernel may keep the pages of a mounted file.
#include <gtest/gtest.h>

#include "files/mount/kept_pages.h"

namespace weft::mount {
namespace {

constexpr std::uint64_t kA = 1, kB = 2, kC = 3, kD = 4;  // open files

files::FileState version(std::int64_t ctime_ns, std::uint32_t level = files::kLevelTimes) {
  files::FileState out;
  out.attributes.size = 7;
  out.attributes.mtime_ns = 1;
  out.attributes.ctime_ns = ctime_ns;
  out.level = level;
  return out;
}

// Opens it for reading, and closes it.
bool read(KeptPages& pages, const std::string& path, const files::FileState& state) {
  const bool kept = pages.opened(path, state, kD) == Pages::kKeep;
  pages.closed(kD);
  return kept;
}

TEST(KeptPages, StayForTheSameVersionOfTheSameName) {
  KeptPages pages;
  EXPECT_FALSE(read(pages, "/file", version(1)));
  EXPECT_TRUE(read(pages, "/file", version(1)));
  EXPECT_FALSE(read(pages, "/other", version(1)));
  EXPECT_FALSE(read(pages, "/file", version(2)));
  EXPECT_TRUE(read(pages, "/file", version(2)));
  files::FileState another = version(2);
  another.object[0] = 1;
  EXPECT_FALSE(read(pages, "/file", another));
}

TEST(KeptPages, GoWhereAVersionCouldNotBeTold) {
  KeptPages pages;
  EXPECT_FALSE(read(pages, "/file", version(1, files::kLevelNone)));
  EXPECT_FALSE(read(pages, "/file", version(1)));
  EXPECT_TRUE(read(pages, "/file", version(1)));
  EXPECT_FALSE(read(pages, "/file", version(1, files::kLevelNone)));
  EXPECT_FALSE(read(pages, "/file", version(1)));
}

TEST(KeptPages, GoWhenNamesChange) {
  KeptPages pages;
  EXPECT_FALSE(read(pages, "/file", version(1)));
  pages.forget();
  EXPECT_FALSE(read(pages, "/file", version(1)));
}

TEST(KeptPages, GoWhileSomebodyReadsAnotherVersion) {
  KeptPages pages;
  EXPECT_EQ(pages.opened("/file", version(1), kA), Pages::kDrop);
  EXPECT_EQ(pages.opened("/file", version(1), kB), Pages::kKeep);
  pages.closed(kB);
  EXPECT_EQ(pages.opened("/file", version(2), kB), Pages::kPass);
  // The reads of the first one, from here on, become pages of this name.
  EXPECT_EQ(pages.opened("/file", version(2), kC), Pages::kPass);
  EXPECT_FALSE(read(pages, "/other", version(1)));
  pages.closed(kA);
  EXPECT_FALSE(read(pages, "/file", version(2)));
  EXPECT_TRUE(read(pages, "/file", version(2)));
  pages.closed(kB);
  pages.closed(kC);
  EXPECT_TRUE(read(pages, "/file", version(2)));
}

TEST(KeptPages, KnowAFileThatIsNoLongerThatOfItsName) {
  KeptPages pages;
  files::FileState state = version(1);
  state.attributes.file_id = 5;
  EXPECT_EQ(pages.opened("/file", state, kA), Pages::kDrop);
  pages.opened_to_write("/file", kB);
  EXPECT_FALSE(pages.was_replaced(kA, 5));
  EXPECT_TRUE(pages.was_replaced(kA, 6));
  EXPECT_FALSE(pages.was_replaced(kB, 6));
  EXPECT_FALSE(pages.was_replaced(kC, 6));
}

TEST(KeptPages, GoWhileSomebodyHasItOpenForWriting) {
  KeptPages pages;
  EXPECT_FALSE(read(pages, "/file", version(1)));
  pages.opened_to_write("/file", kA);
  EXPECT_FALSE(read(pages, "/file", version(1)));
  EXPECT_FALSE(read(pages, "/file", version(1)));
  pages.closed(kA);
  EXPECT_FALSE(read(pages, "/file", version(1)));
  EXPECT_TRUE(read(pages, "/file", version(1)));
}

TEST(KeptPages, GoWhileAVersionThatCouldNotBeToldIsOpen) {
  KeptPages pages;
  EXPECT_EQ(pages.opened("/file", version(1, files::kLevelNone), kA), Pages::kDrop);
  EXPECT_FALSE(read(pages, "/file", version(1)));
  EXPECT_FALSE(read(pages, "/file", version(1)));
  pages.closed(kA);
  EXPECT_FALSE(read(pages, "/file", version(1)));
  EXPECT_TRUE(read(pages, "/file", version(1)));
}

TEST(KeptPages, FollowOpenFilesToOtherNames) {
  KeptPages pages;
  EXPECT_EQ(pages.opened("/folder/file", version(1), kA), Pages::kDrop);
  pages.renamed("/folder", "/moved");
  EXPECT_FALSE(read(pages, "/moved/file", version(2)));
  EXPECT_FALSE(read(pages, "/moved/file", version(2)));
  EXPECT_FALSE(read(pages, "/folder/file", version(2)));
  EXPECT_TRUE(read(pages, "/folder/file", version(2)));
  pages.closed(kA);
  EXPECT_FALSE(read(pages, "/moved/file", version(2)));
  EXPECT_TRUE(read(pages, "/moved/file", version(2)));
}

TEST(KeptPages, AreOfALimitedNumberOfNames) {
  KeptPages pages;
  EXPECT_FALSE(read(pages, "/first", version(1)));
  for (std::size_t i = 1; i < KeptPages::kMost; ++i) {
    EXPECT_FALSE(read(pages, std::to_string(i), version(1)));
  }
  EXPECT_TRUE(read(pages, "/first", version(1)));
  EXPECT_FALSE(read(pages, "/one more", version(1)));
  EXPECT_FALSE(read(pages, "/first", version(1)));
}

}  // namespace
}  // namespace weft::mount
