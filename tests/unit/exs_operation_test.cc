// Parts of an operation of extended sockets: its cancellation, and the buffer for its files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "exs/core/cancellation.h"
#include "exs/core/file_buffer.h"
#include "os/fd.h"

namespace weft::exs {
namespace {

using std::chrono::milliseconds;

constexpr Instant kStart = Instant{} + std::chrono::hours(1);

// ---- cancellation

TEST(Cancellation, IsPendingFromTheCallUntilTheRevocation) {
  Cancellation one;
  EXPECT_FALSE(one.wanted());
  one.want();
  EXPECT_TRUE(one.wanted() && one.pending() && !one.revoked());
  one.revoke();
  EXPECT_TRUE(one.wanted() && !one.pending() && one.revoked());
}

TEST(Cancellation, StaysRevokedWhenItIsWantedAgain) {
  Cancellation one;
  one.want();
  one.revoke();
  one.want();
  EXPECT_TRUE(one.revoked());
}

TEST(Cancellation, GivesThePeerItsTimeOnce) {
  Cancellation one;
  one.want();
  EXPECT_EQ(one.give_time(kStart, milliseconds(100)), kStart + milliseconds(100));
  EXPECT_EQ(one.give_time(kStart + milliseconds(50), milliseconds(100)),
            kStart + milliseconds(100));
}

TEST(Cancellation, IsStuckWhenNothingMovedForAWholeTime) {
  Cancellation one;
  one.want();
  const Instant due = one.give_time(kStart, milliseconds(100));
  EXPECT_FALSE(one.is_stuck(due - milliseconds(1), 5, milliseconds(250)));
  EXPECT_FALSE(one.is_stuck(due, 5, milliseconds(250)));  // the first look counts
  EXPECT_FALSE(one.is_stuck(due + milliseconds(249), 5, milliseconds(250)));
  EXPECT_TRUE(one.is_stuck(due + milliseconds(250), 5, milliseconds(250)));
}

TEST(Cancellation, IsNotStuckWhileSomethingMoves) {
  Cancellation one;
  one.want();
  Instant now = one.give_time(kStart, milliseconds(100));
  for (std::uint64_t moved = 0; moved < 5; ++moved) {
    EXPECT_FALSE(one.is_stuck(now, moved, milliseconds(250)));
    now += milliseconds(250);
  }
  EXPECT_TRUE(one.is_stuck(now, 4, milliseconds(250)));
}

TEST(Cancellation, OfAnOperationThatIsNotPendingIsNeverStuck) {
  Cancellation one;
  EXPECT_FALSE(one.is_stuck(kStart, 0, milliseconds(1)));
  one.want();
  one.revoke();
  EXPECT_FALSE(one.is_stuck(kStart, 0, milliseconds(1)));
  EXPECT_FALSE(one.is_stuck(kStart, 0, milliseconds(1)));
}

// ---- files

os::Fd file_with(const std::string& text) {
  os::Fd fd(::memfd_create("exs_operation_test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

Piece memory(std::string& text) {
  Piece piece;
  piece.base = reinterpret_cast<std::uint8_t*>(text.data());
  piece.length = text.size();
  return piece;
}

Piece part(const os::Fd& fd, off_t offset, std::size_t length) {
  Piece piece;
  piece.fd = fd.get();
  piece.offset = offset;
  piece.length = length;
  return piece;
}

std::string text_of(const std::vector<Piece>& pieces) {
  std::string out;
  for (const Piece& piece : pieces) {
    out.append(reinterpret_cast<const char*>(piece.base), piece.length);
  }
  return out;
}

TEST(FileBuffer, BringsMemoryAndFilesTogetherPartByPart) {
  const os::Fd fd = file_with("0123456789");
  std::string head = "head-";
  std::string tail = "-tail";
  std::vector<Piece> pieces{memory(head), part(fd, 2, 6), memory(tail)};
  FileBuffer buffer;
  buffer.expect();
  EXPECT_FALSE(buffer.loaded());
  ASSERT_EQ(buffer.load(pieces, 0, 7), 0);
  EXPECT_EQ(text_of(pieces), "head-23");
  EXPECT_TRUE(buffer.loaded());
  EXPECT_EQ(buffer.end(), 7U);
  ASSERT_EQ(buffer.load(pieces, 7, 9), 0);
  EXPECT_EQ(text_of(pieces), "4567-tail");
  EXPECT_EQ(buffer.begin(), 7U);
  EXPECT_EQ(buffer.end(), 16U);
  EXPECT_EQ(buffer.named().size(), 3U);
}

TEST(FileBuffer, SaysThatAFileHasBecomeShorter) {
  const os::Fd fd = file_with("0123");
  std::vector<Piece> pieces{part(fd, 2, 3)};
  FileBuffer buffer;
  buffer.expect();
  EXPECT_EQ(buffer.load(pieces, 0, 3), EINVAL);
}

TEST(FileBuffer, SaysWhyAFileCannotBeRead) {
  std::vector<Piece> pieces{part(os::Fd(), 0, 3)};
  pieces[0].fd = 1 << 20;  // no such descriptor
  FileBuffer buffer;
  buffer.expect();
  EXPECT_EQ(buffer.load(pieces, 0, 3), EBADF);
}

TEST(FileBuffer, IsAsNewAfterReset) {
  const os::Fd fd = file_with("0123");
  std::vector<Piece> pieces{part(fd, 0, 4)};
  FileBuffer buffer;
  buffer.expect();
  ASSERT_EQ(buffer.load(pieces, 0, 4), 0);
  buffer.reset();
  EXPECT_FALSE(buffer.expected() || buffer.loaded());
  EXPECT_EQ(buffer.end(), 0U);
}

}  // namespace
}  // namespace weft::exs
