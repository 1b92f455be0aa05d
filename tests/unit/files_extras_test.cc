// Names that a sync may remove, file systems of its source, and files that several connections
// share.
#include "files/client/extras.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "files/client/known_source.h"
#include "files/client/streams.h"

namespace weft::files {
namespace {

TEST(Extras, KeepNamesAsLongAsThereIsRoomAndThenTheirFolders) {
  CopyOptions options;
  options.names_bytes = 1;
  Extras extras;
  extras.clear(options);
  extras.enter("a", false);
  for (const char* name : {"file", "folder"}) {
    extras.note({"a", name, name == std::string("folder"), false});
  }
  for (const char* below : {"b", "b/c"}) {
    extras.enter(below, true);
    extras.note({below, "name", false, true});
  }
  options.max_delete = 3;
  EXPECT_FALSE(extras.may_go(options, {}));
  options.max_delete = 4;
  EXPECT_TRUE(extras.may_go(options, {}));
  const auto names = extras.take_in_order();
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names.back().name, "folder");
  const auto folders = extras.take_folders();
  ASSERT_EQ(folders.size(), 2U);
  EXPECT_EQ(folders.front().below, "b/c");
  EXPECT_TRUE(folders.back().is_hidden);
  // Now they are kept, however little room there is.
  extras.enter("b/c", true);
  extras.note({"b/c", "name", false, true});
  EXPECT_EQ(extras.take_in_order().size(), 1U);
}

TEST(KnownSource, TellsWhichFileSystemsAreTwo) {
  EXPECT_FALSE(are_two({1, 5}, {1, 5}));
  EXPECT_FALSE(are_two({1, 5}, {2, 5}));  // another number since the machine was started
  EXPECT_FALSE(are_two({1, 5}, {1, 6}));
  EXPECT_TRUE(are_two({1, 5}, {2, 6}));
  EXPECT_TRUE(are_two({1, 0}, {2, 0}));
  EXPECT_FALSE(are_two({0, 0}, {2, 6}));  // unknown
}

TEST(KnownSource, IsKeptForEachTwoPlaces) {
  char name[] = "/tmp/weft-known-XXXXXX";
  const std::string folder = std::string(mkdtemp(name)) + "/some/where";
  const KnownSource one(folder, "a", "b");
  EXPECT_FALSE(one.last());
  one.keep({7, 8});
  one.keep({9, 10});
  EXPECT_EQ(KnownSource(folder, "a", "b").last(), (FileSystem{9, 10}));
  EXPECT_FALSE(KnownSource(folder, "ab", "").last());
  const KnownSource nowhere("", "a", "b");
  nowhere.keep({7, 8});
  EXPECT_FALSE(nowhere.last());
  std::filesystem::remove_all(name);
}

TEST(Streams, ShareFilesByTheirWeight) {
  using Weights = std::vector<std::uint64_t>;
  using Places = std::vector<std::size_t>;
  EXPECT_EQ(Streams::share(Weights{90, 90, 90, 90}, 2), (Places{0, 2, 4}));
  EXPECT_EQ(Streams::share(Weights{900, 100, 100, 100}, 2), (Places{0, 1, 4}));
  EXPECT_EQ(Streams::share(Weights{100, 100, 900}, 3), (Places{0, 2, 3, 3}));
  EXPECT_EQ(Streams::share(Weights{100}, 3), (Places{0, 0, 1, 1}));
  EXPECT_EQ(Streams::share(Weights{}, 2), (Places{0, 0, 0}));
}

TEST(Streams, TellTheFirstFailureWhenAllAreDone) {
  std::vector<int> done(3);
  std::vector<Streams::Work> all;
  for (int i = 0; i < 3; ++i) {
    all.emplace_back([&done, i]() -> Outcome<void> {
      done[static_cast<std::size_t>(i)] = 1;
      return i == 0 ? Outcome<void>() : failed(i);
    });
  }
  const auto ok = Streams::run(all);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().error, 1);
  EXPECT_EQ(done, std::vector<int>(3, 1));
}

}  // namespace
}  // namespace weft::files
