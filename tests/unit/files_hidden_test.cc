// Which files libfuse has hidden, and where.
#include <gtest/gtest.h>

#include "files/mount/hidden_files.h"

namespace weft::mount {
namespace {

using Paths = std::vector<std::string>;
constexpr char kHidden[] = "/folder/.fuse_hidden0000000400000001";

TEST(HiddenFiles, AreThoseThatLibfuseHasRenamedUntilTheyAreRemoved) {
  HiddenFiles files;
  files.renamed("/folder/file", kHidden);
  files.renamed("/folder/file", "/folder/.fuse_hidden_of_mine");
  files.renamed("/folder/file", "/folder/.fuse_hidden000000040000000X");
  EXPECT_EQ(files.in("/folder"), Paths{kHidden});
  EXPECT_EQ(files.in("/"), Paths{});
  EXPECT_EQ(files.in("/fold"), Paths{});
  files.removed(kHidden);
  EXPECT_EQ(files.in("/folder"), Paths{});
}

TEST(HiddenFiles, MoveWithTheirFolder) {
  HiddenFiles files;
  files.renamed("/folder/file", kHidden);
  files.renamed("/fold", "/other");
  files.renamed("/folder", "/a/b");
  EXPECT_EQ(files.in("/folder"), Paths{});
  EXPECT_EQ(files.in("/a/b"), Paths{"/a/b/.fuse_hidden0000000400000001"});
}

// The name was a program's before: what it is now is the program's, too.
TEST(HiddenFiles, AreForgottenWhenAProgramGivesThemAName) {
  HiddenFiles files;
  files.renamed("/folder/file", kHidden);
  files.renamed(kHidden, "/folder/rescued");
  EXPECT_EQ(files.in("/folder"), Paths{});
}

}  // namespace
}  // namespace weft::mount
