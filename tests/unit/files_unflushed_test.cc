// Folders that a durable copy has still to flush.
#include "files/client/unflushed.h"

#include <gtest/gtest.h>

namespace weft::files {
namespace {

using Paths = std::vector<std::string>;

TEST(Unflushed, ComeOnceAndTheDeepestFirst) {
  Unflushed folders;
  EXPECT_TRUE(folders.empty());
  for (const char* one : {"", "a", "a/b/c", "z", "a/b", "a/b/c"}) folders.note(one);
  EXPECT_EQ(folders.in_order(), (Paths{"a/b/c", "a/b", "a", "z", ""}));
  EXPECT_FALSE(folders.empty());
  folders.forget("a/b");
  folders.forget("a/file");
  EXPECT_EQ(folders.in_order(), (Paths{"a/b/c", "a", "z", ""}));
  folders.clear();
  EXPECT_TRUE(folders.empty());
  EXPECT_EQ(folders.in_order(), Paths());
}

TEST(Unflushed, FindTheFolderOfAName) {
  Unflushed folders;
  folders.note_parent_of("name");
  EXPECT_EQ(folders.in_order(), Paths{""});
  folders.clear();
  folders.note_parent_of("a/b/name");
  EXPECT_EQ(folders.in_order(), Paths{"a/b"});
  folders.clear();
  folders.note_parent_of("a/b/");
  EXPECT_EQ(folders.in_order(), Paths{"a"});
}

}  // namespace
}  // namespace weft::files
