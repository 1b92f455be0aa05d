#include "files/server/file_requests.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>

#include "base/crc32c.h"
#include "files/protocol/file_attributes.h"
#include "files/server/leases.h"

namespace weft::files {
namespace {

constexpr std::uint32_t kSumBytesAtOnce = 64U << 10U;

// Returns an errno.
int sum_of(int fd, const SumRequest& request, std::uint32_t& out) {
  alignas(4096) static thread_local std::array<std::uint8_t, 256U << 10U> buffer;  // for O_DIRECT
  Crc32c crc;
  std::uint64_t at = request.offset;
  std::uint64_t left = request.length;
  while (left != 0) {
    // Whole buffers, since O_DIRECT reads no part of a block; what is too much is left out.
    const ssize_t got = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(at));
    if (got < 0) return errno;
    const auto used = std::min(left, static_cast<std::uint64_t>(got));
    if (used == 0) break;
    crc.update({buffer.data(), used});
    at += used;
    left -= used;
  }
  out = crc.value();
  return 0;
}

// Returns an errno.   EINVAL: this file system does not tell
int extents_of(int fd, std::uint64_t from, ExtentsReply& out) {
  auto at = static_cast<off_t>(from);
  while (out.count < ExtentsReply::kMost) {
    const off_t data = lseek(fd, at, SEEK_DATA);
    if (data < 0) return errno == ENXIO ? 0 : errno;  // a hole to the end
    const off_t hole = lseek(fd, data, SEEK_HOLE);
    if (hole < 0) return errno == ENXIO ? 0 : errno;  // just made shorter
    if (hole <= data) return EINVAL;
    out.extents[out.count++] = {static_cast<std::uint64_t>(data),
                                static_cast<std::uint64_t>(hole - data)};
    at = hole;
  }
  out.next = static_cast<std::uint64_t>(at);
  return 0;
}

}  // namespace

bool FileRequests::frees_much(const PathName& path) const {
  Attributes found;
  return shared_.tree.stat(path, found) == 0 && S_ISREG(found.mode) &&
         found.blocks > kMuchBytes / 512;
}

int FileRequests::create(const CreateRequest& request, const Asked& asked) {
  if (!may_open()) return EMFILE;
  auto file = files_.make();
  return laters_.carry_out(
      asked, request.size > kMuchBytes,
      [this, file, size = request.size, path = KeptPath(request.path)] {
        return shared_.tree.create(path.name(), size, file->draft);
      },
      [this, file, asked] { answers_.send(asked, CreateReply{files_.add(file)}); });
}

int FileRequests::draft(const DraftRequest& request, const Asked& asked) {
  if (!may_open()) return EMFILE;
  auto file = files_.make();
  const auto there = std::make_shared<std::uint64_t>();
  return laters_.carry_out(
      asked, request.size > kMuchBytes,
      [this, file, there, size = request.size, identity = request.identity,
       path = KeptPath(request.path)] {
        return shared_.tree.draft(path.name(), size, identity, file->draft, *there);
      },
      [this, file, there, asked] {
        answers_.send(asked, DraftReply{files_.add(file), *there});
      });
}

int FileRequests::edit(const EditRequest& request, const Asked& asked) {
  if (!may_open()) return EMFILE;
  shared_.leases->give_up(shared_.tree, request.path);
  auto file = files_.make();
  file->edited = true;
  const auto state = std::make_shared<FileState>();
  return laters_.carry_out(
      asked, (request.flags & kEditTruncate) != 0 && frees_much(request.path),
      [this, file, state, mode = request.mode, flags = request.flags,
       path = KeptPath(request.path)] {
        return shared_.tree.edit(path.name(), mode, flags, file->fd, *state);
      },
      [this, file, state, asked] {
        answers_.send(asked, EditReply{files_.add(file), *state});
      });
}

int FileRequests::set(const SetRequest& request, const Asked& asked) {
  Attributes to;
  to.mode = request.mode;
  to.size = request.size;
  to.mtime_ns = request.mtime_ns;
  const std::uint32_t what = (request.what & ~kAnyMode) | (shared_.options.owners ? kAnyMode : 0U);
  const bool resizes = (what & kSetSize) != 0;
  const bool flushes = (what & kSetFlush) != 0;
  const auto now = std::make_shared<Attributes>();
  auto reply = [this, now, asked] { answers_.send(asked, SetReply{*now}); };
  if (request.handle == 0) {
    if (resizes) shared_.leases->give_up(shared_.tree, request.path);
    // By its name a file is resized once other processes have given up their leases of it.
    return laters_.carry_out(
        asked, flushes || resizes,
        [this, what, flushes, to, now, path = KeptPath(request.path)] {
          // Opened first: it may be closed to its owner afterwards.
          os::Fd file;
          int error = flushes ? shared_.tree.open_to_flush(path.name(), file) : 0;
          if (flushes && error == 0 && !file) return 0;
          if (error == 0) error = shared_.tree.set(path.name(), what, to, *now);
          return error == 0 && flushes ? shared_.flush(file.get()) : error;
        },
        std::move(reply));
  }
  const auto file = files_.find(request.handle);
  // Nothing to change: the attributes of any open file.
  if (file == nullptr || (!file->edited && request.what != 0)) return EBADF;
  return laters_.carry_out(
      asked, flushes || (resizes && takes_much(file->get())),
      [this, file, what, flushes, to, now] {
        int error = set_attributes(file->get(), what, to);
        if (error == 0) *now = attributes_of(file->get(), &error);
        return error == 0 && flushes ? shared_.flush(file->get()) : error;
      },
      std::move(reply));
}

int FileRequests::commit(const CommitRequest& request, const Asked& asked) {
  const auto file = files_.find(request.handle);
  if (file == nullptr || file->draft == nullptr) return EBADF;
  // Writes that are under way would change a file that others see already.
  if (uploads_.busy_with(file)) return EBUSY;
  static_cast<void>(files_.take(request.handle));
  const bool durable = (request.flags & kCommitDurable) != 0;
  return laters_.carry_out(
      asked, durable || file->draft->replaces_more_than(kMuchBytes),
      [this, file, flags = request.flags, mode = request.mode & shared_.mode_bits(),
       mtime_ns = request.mtime_ns] {
        bool flush_failed = false;
        const int error = file->draft->commit(mode, mtime_ns, flags, flush_failed);
        if (flush_failed) shared_.note_lost_flush();
        return error;
      },
      [this, asked] { answers_.send(asked, NoReply()); });
}

int FileRequests::rename(const RenameRequest& request, const Asked& asked) {
  return laters_.carry_out(
      asked, frees_much(request.path),
      [this, from = std::string(request.from), keep = (request.flags & kRenameKeep) != 0,
       path = KeptPath(request.path)] {
        return shared_.tree.rename(PathName{from, path.links}, path.name(), keep);
      },
      [this, asked] { answers_.send(asked, NoReply()); });
}

int FileRequests::remove(const RemoveRequest& request, const Asked& asked) {
  const bool folder = (request.flags & kRemoveDirectory) != 0;
  const auto reply = [this, asked] { answers_.send(asked, NoReply()); };
  const int error = folder ? shared_.tree.remove(request.path, true, false) : 0;
  if (folder && error == 0) reply();
  if (folder && error != ENOTEMPTY) return error;
  return laters_.carry_out(
      asked, folder || frees_much(request.path),
      [this, folder, path = KeptPath(request.path)] {
        return shared_.tree.remove(path.name(), folder, true);
      },
      reply);
}

int FileRequests::sum(const SumRequest& request, const Asked& asked) {
  const auto file = files_.find(request.handle);
  if (file == nullptr) return EBADF;
  const auto sum = std::make_shared<std::uint32_t>();
  return laters_.carry_out(
      asked, request.length > kSumBytesAtOnce,
      [file, request, sum] { return sum_of(file->get(), request, *sum); },
      [this, sum, asked] { answers_.send(asked, SumReply{*sum}); });
}

int FileRequests::extents(const ExtentsRequest& request, const Asked& asked) {
  const auto file = files_.find(request.handle);
  if (file == nullptr) return EBADF;
  const auto reply = std::make_shared<ExtentsReply>();
  return laters_.carry_out(
      asked, true,
      [file, from = request.offset, reply] { return extents_of(file->get(), from, *reply); },
      [this, reply, asked] { answers_.send(asked, *reply); });
}

}  // namespace weft::files
