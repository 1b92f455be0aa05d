// Files that outlive their connections, and which attributes an archive sets.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "files/client/archive.h"
#include "files/server/kept_files.h"

namespace weft::files {
namespace {

struct Leaver {
  Leaver(Background& disposal, KeptFiles& keeper, std::size_t count)
      : kept(keeper), files(disposal, 1024) {
    key = kept.add(files).value();
    for (std::size_t i = 0; i < count; ++i) handle = files.add(files.make());
  }
  void lose() { kept.lost(key, KeptFiles::Clock::now()); }
  [[nodiscard]] bool is_kept() const { return kept.find(key, handle) != nullptr; }

  KeptFiles& kept;
  OpenFiles files;
  KeepKey key{};
  std::uint64_t handle = 0;
};

TEST(KeptFiles, OfOneThatLeavesManyDoNotThrowOutThoseOfOthers) {
  const auto disposal = Background::create(1);
  ASSERT_NE(disposal, nullptr);
  KeptFiles kept;
  Leaver first(*disposal, kept, 3);
  first.lose();
  std::vector<std::unique_ptr<Leaver>> many;
  constexpr std::size_t kEach = 512;
  for (std::size_t i = 0; i < 2 * KeptFiles::kMost / kEach; ++i) {
    many.push_back(std::make_unique<Leaver>(*disposal, kept, kEach));
    many.back()->lose();
    EXPECT_LE(kept.size(), KeptFiles::kMost);
  }
  EXPECT_TRUE(first.is_kept());
  EXPECT_FALSE(many.front()->is_kept());
  EXPECT_TRUE(many.back()->is_kept());
}

TEST(Archive, SetsWhatBothEndsSee) {
  const Xattrs now{{"security.capability", {1}}, {"trusted.old", {1}}, {"user.old", {1}}};
  const Xattrs wanted{{"trusted.new", {2}}, {"user.new", {2}}};
  const auto names = [&](const Privileges& may) {
    const XattrChanges changes = changes_between(now, wanted, may);
    std::string out;
    for (const auto& [name, value] : changes.set) out += "+" + name + " ";
    for (const std::string& name : changes.remove) out += "-" + name + " ";
    return out;
  };
  EXPECT_EQ(names({false, false}), "+user.new -user.old ");
  EXPECT_EQ(names({true, false}), "+user.new -security.capability -user.old ");
  EXPECT_EQ(names({true, true}),
            "+trusted.new +user.new -security.capability -trusted.old -user.old ");
}

}  // namespace
}  // namespace weft::files
