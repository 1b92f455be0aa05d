// Which names --include, --exclude and --filter take. What is expected is what rsync 3.2 does.
#include "files/client/filter.h"

#include <gtest/gtest.h>

namespace weft::files {
namespace {

bool matches(const char* pattern, const char* path, bool is_folder = false) {
  return Pattern(pattern).matches(path, is_folder);
}

TEST(Pattern, ANameAnywhere) {
  EXPECT_TRUE(matches("*.o", "x.o"));
  EXPECT_TRUE(matches("*.o", "a/b/x.o"));
  EXPECT_TRUE(matches("*", ".hidden"));
  EXPECT_TRUE(matches("?[b-d]x", "acx"));
  EXPECT_FALSE(matches("*.o", "x.o/y")) << "the folder is left out by itself";
  EXPECT_FALSE(matches("?", "ab"));
  EXPECT_FALSE(matches("[!a]", "a"));
}

TEST(Pattern, TheEndOfAPath) {
  EXPECT_TRUE(matches("b/c", "a/b/c"));
  EXPECT_TRUE(matches("b/c", "b/c"));
  EXPECT_FALSE(matches("b/c", "a/xb/c"));
  EXPECT_FALSE(matches("a*c", "a/b/c")) << "a star goes across no slash";
  EXPECT_TRUE(matches("a**c", "a/b/c"));
  EXPECT_TRUE(matches("a**c", "x/a/b/c"));
  EXPECT_TRUE(matches("**/c", "c"));
  EXPECT_TRUE(matches("**/c", "a/b/c"));
  EXPECT_FALSE(matches("a/**/c", "a/c"));
}

TEST(Pattern, APathFromTheTop) {
  EXPECT_TRUE(matches("/a/b", "a/b"));
  EXPECT_TRUE(matches("/b", "b"));
  EXPECT_FALSE(matches("/b", "a/b"));
  EXPECT_TRUE(matches("/a/**", "a/b/c"));
}

TEST(Pattern, FoldersOnly) {
  EXPECT_TRUE(matches("build/", "a/build", true));
  EXPECT_TRUE(matches("/build/", "build", true));
  EXPECT_FALSE(matches("build/", "build"));
  EXPECT_TRUE(matches("a/***", "a", true));
  EXPECT_TRUE(matches("a/***", "a/b/c"));
  EXPECT_FALSE(matches("a/***", "a"));
}

TEST(Pattern, ABackslashBesideWildcards) {
  EXPECT_TRUE(matches("\\*x*", "*xy"));
  EXPECT_FALSE(matches("\\*x*", "axy"));
  EXPECT_TRUE(matches("a\\b", "a\\b")) << "without wildcards it is an octet like others";
}

TEST(Pattern, ManyStarsTakeNoTime) {
  const std::string name(255, 'a');
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "*a";
  EXPECT_FALSE(matches((pattern + "b").c_str(), name.c_str()));
}

TEST(Filter, NothingWithoutRules) { EXPECT_FALSE(Filter().hides("a", "b", true)); }

TEST(Filter, TheFirstRuleDecides) {
  Filter filter;
  filter.include("keep.o");
  filter.exclude("*.o");
  EXPECT_FALSE(filter.hides("a", "keep.o", false));
  EXPECT_TRUE(filter.hides("a", "x.o", false));
}

TEST(Filter, RulesOfOneSide) {
  Filter filter;
  ASSERT_TRUE(filter.add_rule("H hidden"));
  ASSERT_TRUE(filter.add_rule("protect kept"));
  ASSERT_TRUE(filter.add_rule("- both"));
  EXPECT_TRUE(filter.hides("", "hidden", false));
  EXPECT_FALSE(filter.protects("", "hidden", false, false));
  EXPECT_FALSE(filter.hides("", "kept", false));
  EXPECT_TRUE(filter.protects("", "kept", false, true));
  EXPECT_TRUE(filter.protects("", "both", false, false));
  EXPECT_FALSE(filter.protects("", "both", false, true));
  ASSERT_TRUE(filter.add_rule("!"));
  EXPECT_FALSE(filter.hides("", "both", false));
}

TEST(Filter, RefusesWhatIsNoRule) {
  for (const char* rule : {"", "-", "+ ", "*.o", ". file", "-! x", "merge x"}) {
    EXPECT_FALSE(Filter().add_rule(rule)) << rule;
  }
}

}  // namespace
}  // namespace weft::files
