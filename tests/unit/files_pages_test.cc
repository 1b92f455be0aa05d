// When the kernel may keep the pages of a mounted file.
#include <gtest/gtest.h>

#include "files/mount/kept_pages.h"

namespace weft::mount {
namespace {

files::FileState version(std::int64_t ctime_ns, std::uint32_t level = files::kLevelTimes) {
  files::FileState out;
  out.attributes.size = 7;
  out.attributes.mtime_ns = 1;
  out.attributes.ctime_ns = ctime_ns;
  out.level = level;
  return out;
}

TEST(KeptPages, StayForTheSameVersionOfTheSameName) {
  KeptPages pages;
  EXPECT_FALSE(pages.opened("/file", version(1)));
  EXPECT_TRUE(pages.opened("/file", version(1)));
  EXPECT_FALSE(pages.opened("/other", version(1)));
  EXPECT_FALSE(pages.opened("/file", version(2)));
  EXPECT_TRUE(pages.opened("/file", version(2)));
  files::FileState another = version(2);
  another.object[0] = 1;
  EXPECT_FALSE(pages.opened("/file", another));
}

TEST(KeptPages, GoWhereAVersionCouldNotBeTold) {
  KeptPages pages;
  EXPECT_FALSE(pages.opened("/file", version(1, files::kLevelNone)));
  EXPECT_FALSE(pages.opened("/file", version(1)));
  EXPECT_TRUE(pages.opened("/file", version(1)));
  EXPECT_FALSE(pages.opened("/file", version(1, files::kLevelNone)));
  EXPECT_FALSE(pages.opened("/file", version(1)));
}

TEST(KeptPages, GoWhenNamesChange) {
  KeptPages pages;
  EXPECT_FALSE(pages.opened("/file", version(1)));
  pages.forget();
  EXPECT_FALSE(pages.opened("/file", version(1)));
}

TEST(KeptPages, AreOfALimitedNumberOfNames) {
  KeptPages pages;
  EXPECT_FALSE(pages.opened("/first", version(1)));
  for (std::size_t i = 1; i < KeptPages::kMost; ++i) {
    EXPECT_FALSE(pages.opened(std::to_string(i), version(1)));
  }
  EXPECT_TRUE(pages.opened("/first", version(1)));
  EXPECT_FALSE(pages.opened("/one more", version(1)));
  EXPECT_FALSE(pages.opened("/first", version(1)));
}

}  // namespace
}  // namespace weft::mount
