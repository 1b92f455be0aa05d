// A mount remembers what the server has perhaps not flushed.
#include <gtest/gtest.h>

#include <string>

#include "files/mount/mount_changes.h"

namespace weft::mount {
namespace {

using Files = Unsynced<std::uint64_t>;

constexpr std::uint64_t kFile = 1;
constexpr std::uint64_t kOthers = 70000;  // more than it has room for

void write_others(Files& files, std::uint64_t verifier) {
  for (std::uint64_t i = 0; i < kOthers; ++i) files.note(kFile + 1 + i, verifier);
}

// Whether a server of this verifier that flushes it has lost something since.
bool loses(Files& files, std::uint64_t verifier) {
  const std::uint64_t before = files.losses(kFile);
  files.settle(kFile, files.of(kFile), verifier);
  return files.losses(kFile) != before;
}

TEST(Unsynced, TellsUnderWhichVerifierAFileWasWritten) {
  Files files;
  EXPECT_EQ(files.of(kFile).verifier, 0U);
  files.note(kFile, 7);
  files.note(kFile, 7);
  EXPECT_EQ(files.of(kFile).verifier, 7U);
  EXPECT_FALSE(loses(files, 7));
  EXPECT_EQ(files.of(kFile).verifier, 0U);
  EXPECT_FALSE(loses(files, 8));
  files.note(kFile, 7);
  files.note(kFile, 8);
  EXPECT_EQ(files.of(kFile).verifier, Files::kMixed);
  EXPECT_TRUE(loses(files, 8));
  EXPECT_FALSE(loses(files, 8));
}

TEST(Unsynced, AFlushThatFailedSettlesNothing) {
  Files files;
  files.note(kFile, 7);
  static_cast<void>(files.of(kFile));
  EXPECT_TRUE(loses(files, 8));
}

TEST(Unsynced, WhatWasWrittenDuringAFlushIsNotSettled) {
  Files files;
  files.note(kFile, 7);
  const auto sent = files.of(kFile);
  files.note(kFile, 7);
  files.settle(kFile, sent, 7);
  EXPECT_TRUE(loses(files, 8));
}

TEST(Unsynced, TwoFlushesAtOnceCountALossOnce) {
  Files files;
  files.note(kFile, 7);
  const auto first = files.of(kFile);
  const auto second = files.of(kFile);
  files.settle(kFile, first, 8);
  const std::uint64_t losses = files.losses(kFile);
  EXPECT_NE(losses, 0U);
  files.settle(kFile, second, 8);
  EXPECT_EQ(files.losses(kFile), losses);
}

TEST(Unsynced, AFileThatWasForgottenStillHasItsVerifier) {
  Files files;
  files.note(kFile, 7);
  write_others(files, 7);
  EXPECT_EQ(files.of(kFile).verifier, 7U);
}

TEST(Unsynced, AFileThatWasForgottenAndWrittenAgainHasTwoVerifiers) {
  Files files;
  files.note(kFile, 7);
  write_others(files, 7);
  files.note(kFile, 8);
  EXPECT_EQ(files.of(kFile).verifier, Files::kMixed);
}

TEST(MountChanges, NamesAreSentToTheirFolders) {
  Changes changes;
  changes.note_name("/name", 7);
  changes.note_name("/folder/name", 8);
  EXPECT_EQ(changes.folders().of("/").verifier, 7U);
  EXPECT_EQ(changes.folders().of("/folder").verifier, 8U);
}

}  // namespace
}  // namespace weft::mount
