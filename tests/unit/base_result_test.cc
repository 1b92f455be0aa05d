#include "base/result.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace weft {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return fail(Error::kInvalidArgument);
  return value / 2;
}

TEST(Result, CarriesEitherAValueOrAnError) {
  EXPECT_EQ(half(4), 2);
  ASSERT_FALSE(half(5));
  EXPECT_EQ(half(5).error(), Error::kInvalidArgument);
}

TEST(Result, StatusIsAResultWithoutAValue) {
  const Status good{};
  const Status bad = fail(Error::kNoSpace);
  EXPECT_TRUE(good);
  EXPECT_EQ(bad.error(), Error::kNoSpace);
}

TEST(Error, EveryListedValueHasItsOwnDescription) {
  std::set<std::string> texts;
  std::size_t known = 0;
  for (unsigned v = 0; v < 256; ++v) {
    const std::string text(describe(static_cast<Error>(v)));
    EXPECT_FALSE(text.empty());
    if (text == "unknown error") continue;
    ++known;
    EXPECT_TRUE(texts.insert(text).second) << text;
  }
  EXPECT_EQ(known, 33U);  // 15 of the wire, 10 of the API, 8 of connections
}

TEST(Error, NumbersAreStable) {
  EXPECT_EQ(static_cast<int>(Error::kTruncated), 1);
  EXPECT_EQ(static_cast<int>(Error::kInvalidArgument), 32);
  EXPECT_EQ(static_cast<int>(Error::kTimedOut), 64);
}

}  // namespace
}  // namespace weft
