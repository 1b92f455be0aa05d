// The octets of a file on their way to a server; push.cc walks the tree.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "files/client/blocks.h"
#include "files/client/equal_by_sums.h"
#include "files/client/push.h"
#include "files/protocol/file_attributes.h"

namespace weft::files {
namespace {

// A smaller file costs less to send again than to keep and compare.
constexpr std::uint64_t kResumeMin = std::uint64_t{4} << 20U;
constexpr int kBusyTries = 30;
constexpr std::chrono::milliseconds kBusyPause{100};

}  // namespace

// All of it, so that the server has this version and no other.
Outcome<void> Push::send_file(int fd, const Version& version, const DraftReply& made,
                              const std::string& to) {
  const std::uint64_t handle = made.handle;
  const auto from = compare(fd, handle, made.there, to);
  if (!from) return tl::unexpected(from.error());
  totals_.expected += version.size - *from;
  if (auto ok = send_blocks(fd, handle, *from, version, to); !ok) return ok;
  if (options_.verify) {
    const auto equal = compare(fd, handle, version.size, to);
    if (!equal) return tl::unexpected(equal.error());
    if (*equal != version.size) {
      return failed(EIO, to, "what the server has differs from the file; it was not kept");
    }
  }
  return {};
}

// A large file is begun so that another attempt, of this run or a later one, can go on with it.
// One with holes is not: room for all of it would be reserved.
Outcome<DraftReply> Push::begin(const std::string& to, const Version& version) {
  if (options_.resume && version.size >= kResumeMin && !version.sparse) {
    const auto identity = static_cast<std::uint64_t>(version.mtime_ns);
    // The server may not have seen yet that our connection before this one is gone. If it is
    // somebody else who sends the same file, it is not resumed.
    for (int tries = 0; tries <= kBusyTries; ++tries) {
      auto made = link_.client().call(DraftRequest{identity, version.size, named(to)});
      if (made || made.error().error != EBUSY) return made;
      std::this_thread::sleep_for(kBusyPause);
    }
  }
  const std::uint64_t room = version.sparse ? 0 : version.size;
  const auto made = link_.client().call(CreateRequest{0, room, named(to)});
  if (!made) return tl::unexpected(made.error());
  return DraftReply{made->handle, 0};
}

// How many octets that the server has are those of the file. Blocks arrive there in any order, so
// its length alone says nothing.
Outcome<std::uint64_t> Push::compare(int fd, std::uint64_t handle, std::uint64_t there,
                                     const std::string& to) {
  const std::size_t bytes = std::size_t{kBlocks} * kBlockBytes;
  return equal_by_sums(link_.client(), handle, fd, there, {link_.memory().data(), bytes}, to);
}

namespace {

struct Range {
  std::uint64_t from = 0, to = 0;
};

// The next octets to be sent, from `at` on: holes are left out, but for the last octet, which gives
// the file its length.
Range next_data(int fd, std::uint64_t at, std::uint64_t size) {
  const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
  if (data < 0 && errno != ENXIO) return {at, size};  // this file system cannot tell
  if (data < 0 || static_cast<std::uint64_t>(data) >= size) return {size - 1, size};
  const off_t hole = lseek(fd, data, SEEK_HOLE);
  const auto from = static_cast<std::uint64_t>(data);
  return {from, hole > data ? std::min(static_cast<std::uint64_t>(hole), size) : size};
}

}  // namespace

Outcome<void> Push::send_blocks(int fd, std::uint64_t handle, std::uint64_t from,
                                const Version& version, const std::string& to) {
  const std::uint64_t size = version.size;
  std::uint32_t busy = 0;  // bit: slot
  std::uint64_t issued = from;
  Outcome<void> result;
  while (link_.alive() && ((issued < size && result) || busy != 0)) {
    std::uint32_t slot = 0;
    while (slot < kBlocks && (busy >> slot & 1U) != 0) ++slot;
    if (result && issued < size && slot < kBlocks) {
      // Only into a file that is new: there is nothing else where a hole is to be.
      const Range data = version.sparse ? next_data(fd, issued, size) : Range{issued, size};
      issued = data.from;
      std::uint8_t* at = link_.memory().data() + std::size_t{slot} * kBlockBytes;
      const auto want =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(kBlockBytes, data.to - issued));
      const ssize_t got = pread(fd, at, want, static_cast<off_t>(issued));
      if (got != static_cast<ssize_t>(want)) {
        result = got < 0 ? failed(errno, to)
                         : failed(ESTALE, to,
                                  "the file became shorter while it was sent; run this again");
        continue;
      }
      const WriteRequest request{handle, issued, {address_of(at), link_.memory().rkey(), want}};
      pace_->wait(want);
      if (auto ok = link_.client().post(request, slot); !ok) return ok;
      busy |= 1U << slot;
      issued += want;
      continue;
    }
    const auto answer = link_.client().wait();
    if (!answer) return tl::unexpected(answer.error());
    if (answer->op != Op::kWrite || answer->tag >= kBlocks || (busy >> answer->tag & 1U) == 0) {
      return failed(EPROTO, to);
    }
    busy &= ~(1U << answer->tag);
    if (answer->error != 0) {
      if (result) result = tl::unexpected(explain(answer->error, to));
      continue;
    }
    const auto reply = link_.client().read<WriteReply>(*answer);
    if (!reply) return tl::unexpected(reply.error());
    totals_.bytes += reply->bytes;
    if (watcher_.progress) watcher_.progress(totals_);
  }
  if (result && holds_more(fd, size)) result = tl::unexpected(explain(EOVERFLOW, to));
  return result;
}

}  // namespace weft::files
