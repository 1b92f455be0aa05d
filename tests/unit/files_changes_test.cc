// A mount remembers its own changes.
#include "files/mount/mount_changes.h"

#include <gtest/gtest.h>

namespace weft::mount {
namespace {

constexpr std::uint64_t kFile = 1;
constexpr std::uint64_t kOthers = 70000;  // more than it has room for

void write_others(Changes& changes, std::uint64_t verifier) {
  for (std::uint64_t i = 0; i < kOthers; ++i) changes.note_written(kFile + 1 + i, verifier);
}

TEST(MountChanges, TellUnderWhichVerifierAFileWasWritten) {
  Changes changes;
  EXPECT_EQ(changes.take_written(kFile), 0U);
  changes.note_written(kFile, 7);
  changes.note_written(kFile, 7);
  EXPECT_EQ(changes.take_written(kFile), 7U);
  EXPECT_EQ(changes.take_written(kFile), 0U);
  changes.note_written(kFile, 7);
  changes.note_written(kFile, 8);
  EXPECT_EQ(changes.take_written(kFile), Changes::kMixed);
}

TEST(MountChanges, AFileThatWasForgottenStillHasItsVerifier) {
  Changes changes;
  changes.note_written(kFile, 7);
  write_others(changes, 7);
  EXPECT_EQ(changes.take_written(kFile), 7U);
}

TEST(MountChanges, AFileThatWasForgottenAndWrittenAgainHasTwoVerifiers) {
  Changes changes;
  changes.note_written(kFile, 7);
  write_others(changes, 7);
  changes.note_written(kFile, 8);
  EXPECT_EQ(changes.take_written(kFile), Changes::kMixed);
}

}  // namespace
}  // namespace weft::mount
