// What --exclude leaves out of a copy.
#include "files/client/exclude.h"

#include <gtest/gtest.h>

namespace weft::files {
namespace {

TEST(Exclude, NothingWithoutPatterns) { EXPECT_FALSE(is_excluded({}, "a", "b", true)); }

TEST(Exclude, ANameAnywhere) {
  EXPECT_TRUE(is_excluded({"*.o"}, "", "x.o", false));
  EXPECT_TRUE(is_excluded({"y", "*.o"}, "a/b", "x.o", false));
  EXPECT_TRUE(is_excluded({"*"}, "", ".hidden", false));
  EXPECT_FALSE(is_excluded({"*.o"}, "x.o", "y", false)) << "the folder is left out by itself";
  EXPECT_FALSE(is_excluded({"*.o"}, "", "x.c", false));
}

TEST(Exclude, TheEndOfAPath) {
  EXPECT_TRUE(is_excluded({"b/c"}, "a/b", "c", false));
  EXPECT_TRUE(is_excluded({"b/c"}, "b", "c", false));
  EXPECT_FALSE(is_excluded({"b/c"}, "a/xb", "c", false));
  EXPECT_FALSE(is_excluded({"a*c"}, "a/b", "c", false)) << "no pattern goes across folders";
}

TEST(Exclude, APathFromTheTop) {
  EXPECT_TRUE(is_excluded({"/a/b"}, "a", "b", false));
  EXPECT_TRUE(is_excluded({"/b"}, "", "b", false));
  EXPECT_FALSE(is_excluded({"/b"}, "a", "b", false));
}

TEST(Exclude, FoldersOnly) {
  EXPECT_TRUE(is_excluded({"build/"}, "a", "build", true));
  EXPECT_TRUE(is_excluded({"/build/"}, "", "build", true));
  EXPECT_FALSE(is_excluded({"build/"}, "", "build", false));
}

}  // namespace
}  // namespace weft::files
