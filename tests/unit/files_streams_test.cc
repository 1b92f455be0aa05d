// Copies that help with the files of another one.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "files/client/streams.h"

namespace weft::files {
namespace {

TEST(Streams, GoOnOverThoseThatAreNotLost) {
  Streams streams{CopyWatcher()};
  ASSERT_EQ(streams.idle(2), 0U);
  streams.begin(0, [] { return failed(ECONNRESET, "first"); });
  streams.wait_all();
  EXPECT_EQ(streams.idle(2), 1U);
  const auto left = streams.wait_idle(2);
  ASSERT_TRUE(left);
  ASSERT_EQ(*left, 1U);
  streams.begin(1, [] { return failed(EACCES, "second"); });
  const auto none = streams.wait_idle(2);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().what, "first");
  EXPECT_FALSE(streams.finish());
}

// It copies numbers, and is lost at one that says so.
struct Copy {
  static constexpr int kLost = -1;
  Outcome<void> run() {
    while (!files.empty()) {
      if (lost || files.back() == kLost) {
        files.back() = 0;
        lost = true;
        return failed(ECONNRESET);
      }
      files.pop_back();
      ++copied;
    }
    return {};
  }
  std::vector<int> files;
  CopyWatcher watcher;
  bool lost = false;
  std::size_t copied = 0;
};

struct HelpersTest : testing::Test {
  Outcome<void> hand_over(std::size_t count) {
    const auto one = helpers.wait_for_one(count, [this]() -> std::unique_ptr<Copy> {
      ++asked;
      return has_room ? std::make_unique<Copy>() : nullptr;
    });
    if (!one) return tl::unexpected(one.error());
    if (*one == nullptr) {
      files.clear();
      return {};
    }
    (*one)->files = std::exchange(files, {});
    helpers.begin(**one, (*one)->watcher, [copy = *one] { return copy->run(); });
    return {};
  }
  Outcome<void> share(std::size_t count) {
    helpers.start(watcher);
    const std::vector<std::uint64_t> weights(files.size(), 100);
    return Helpers<Copy>::share(files, weights, count,
                                [this](std::size_t n) { return hand_over(n); });
  }
  Outcome<void> finish() {
    auto ok = helpers.finish(
        [this](Copy& one) {
          files.insert(files.end(), one.files.begin(), one.files.end());
          return !std::exchange(one.files, {}).empty();
        },
        [this](std::size_t count) { return hand_over(count); });
    helpers.for_each([this](const Copy& one) { copied += one.copied; });
    helpers.stop(watcher);
    return ok;
  }

  CopyWatcher watcher;
  Helpers<Copy> helpers;
  std::vector<int> files;
  std::atomic<std::size_t> asked{0};
  bool has_room = true;
  std::size_t copied = 0;
};

TEST_F(HelpersTest, OthersCopyWhatALostOneHasLeft) {
  files.assign(30, 0);
  files[4] = Copy::kLost;
  ASSERT_TRUE(share(3));
  EXPECT_TRUE(finish());
  EXPECT_EQ(copied, 30U);
  EXPECT_TRUE(files.empty());
}

TEST_F(HelpersTest, FailWhenAllAreLost) {
  files.assign(3, Copy::kLost);
  ASSERT_TRUE(share(3));
  EXPECT_FALSE(finish());
  EXPECT_EQ(copied, 0U);
  EXPECT_EQ(files.size(), 3U) << "they are left to the caller";
}

TEST_F(HelpersTest, AskAFullServerAgainLater) {
  has_room = false;
  files.assign(1, 0);
  ASSERT_TRUE(share(1));
  EXPECT_EQ(asked, 1U);
  has_room = true;
  for (int shares = 0; asked == 1 && shares < 100; ++shares) {
    files.assign(1, 0);
    ASSERT_TRUE(share(1));
  }
  EXPECT_EQ(asked, 2U);
  EXPECT_TRUE(finish());
  EXPECT_EQ(copied, 1U);
}

}  // namespace
}  // namespace weft::files
