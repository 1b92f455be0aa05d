// Requests that may keep whoever carries them out waiting: those that make, change and remove
// files, sums and extents. What moves no octets and frees no room to speak of is done at once; the
// rest in the background, so that nobody else waits for it.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <new>

#include "base/crc32c.h"
#include "files/protocol/file_attributes.h"
#include "files/server/data_session.h"

namespace weft::files {
namespace {

// To reserve or free less takes no longer than many a request.
constexpr std::uint64_t kMuchBytes = std::uint64_t{4} << 20U;
constexpr std::uint32_t kSumBytesAtOnce = 64U << 10U;

bool takes_much(int fd) {
  struct stat s {};
  return fstat(fd, &s) == 0 && bytes_on_disk(s) > kMuchBytes;
}

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

// The last descriptor of a file without a name frees its room.
class Session::Disposal final : public Background::Job {
 public:
  explicit Disposal(OpenFile* file) : file_(file) {}
  static void dispose(Background& background, OpenFile* file) {
    struct stat s {};
    std::unique_ptr<OpenFile> last(file);
    if (fstat(file->get(), &s) != 0 || s.st_nlink != 0 || bytes_on_disk(s) <= kMuchBytes) return;
    auto job = std::make_unique<Disposal>(last.release());
    background.run(std::move(job));
  }
  void work() noexcept override { file_.reset(); }
  void done() override {}

 private:
  std::unique_ptr<OpenFile> file_;
};

std::shared_ptr<Session::OpenFile> Session::new_file() {
  return {new OpenFile,
          [&shared = shared_](OpenFile* file) { Disposal::dispose(*shared.disposal, file); }};
}

// ---- In the background

void Session::Later::work() noexcept {
  try {
    error = task();
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
}

int Session::carry_out(const Asked& asked, bool slow, std::function<int()> task,
                       std::function<void()> reply) {
  if (!slow) {
    const int error = task();
    if (error == 0) reply();
    return error;
  }
  if (!begin_one()) return 0;
  auto later = std::make_unique<Later>();
  later->session = this;
  later->asked = asked;
  later->task = std::move(task);
  later->reply = std::move(reply);
  laters_.push_back(std::move(later));
  run_laters();
  return 0;
}

void Session::run_laters() {
  for (; laters_running_ < kMaxLaters && !laters_.empty(); laters_.pop_front()) {
    ++laters_running_;
    shared_.background->run(std::move(laters_.front()));
  }
}

void Session::later_done(const Later& later) {
  assert(later.session == this && laters_running_ > 0);
  --laters_running_;
  if (dead_) return;
  assert(unanswered_ > 0);
  --unanswered_;
  run_laters();
  if (later.error != 0) return refuse(later.asked, later.error);
  later.reply();
}

bool Session::frees_much(const PathName& path) const {
  Attributes found;
  return shared_.tree.stat(path, found) == 0 && S_ISREG(found.mode) &&
         found.blocks > kMuchBytes / 512;
}

bool Session::may_open() const {
  return files_.size() + laters_.size() + laters_running_ < shared_.options.max_open_files;
}

// ---- Requests

int Session::create(const CreateRequest& request, const Asked& asked) {
  if (!may_open()) return EMFILE;
  auto file = new_file();
  return carry_out(
      asked, request.size > kMuchBytes,
      [this, file, size = request.size, path = KeptPath(request.path)] {
        return shared_.tree.create(path.name(), size, file->draft);
      },
      [this, file, asked] { send(asked, CreateReply{add(file)}); });
}

int Session::draft(const DraftRequest& request, const Asked& asked) {
  if (!may_open()) return EMFILE;
  auto file = new_file();
  const auto there = std::make_shared<std::uint64_t>();
  return carry_out(
      asked, request.size > kMuchBytes,
      [this, file, there, size = request.size, identity = request.identity,
       path = KeptPath(request.path)] {
        return shared_.tree.draft(path.name(), size, identity, file->draft, *there);
      },
      [this, file, there, asked] {
        send(asked, DraftReply{add(file), *there});
      });
}

int Session::edit(const EditRequest& request, const Asked& asked) {
  if (!may_open()) return EMFILE;
  auto file = new_file();
  file->edited = true;
  const auto state = std::make_shared<FileState>();
  return carry_out(
      asked, (request.flags & kEditTruncate) != 0 && frees_much(request.path),
      [this, file, state, mode = request.mode, flags = request.flags,
       path = KeptPath(request.path)] {
        return shared_.tree.edit(path.name(), mode, flags, file->fd, *state);
      },
      [this, file, state, asked] {
        send(asked, EditReply{add(file), *state});
      });
}

int Session::set(const SetRequest& request, const Asked& asked) {
  Attributes to;
  to.mode = request.mode;
  to.size = request.size;
  to.mtime_ns = request.mtime_ns;
  const std::uint32_t what = request.what;
  const bool resizes = (what & kSetSize) != 0;
  const bool flushes = (what & kSetFlush) != 0;
  const auto now = std::make_shared<Attributes>();
  auto reply = [this, now, asked] { send(asked, SetReply{*now}); };
  if (request.handle == 0) {
    return carry_out(
        asked, flushes || (resizes && frees_much(request.path)),
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
  const auto file = find(request.handle);
  // Nothing to change: the attributes of any open file.
  if (file == nullptr || (!file->edited && what != 0)) return EBADF;
  return carry_out(
      asked, flushes || (resizes && takes_much(file->get())),
      [this, file, what, flushes, to, now] {
        int error = set_attributes(file->get(), what, to);
        if (error == 0) *now = attributes_of(file->get(), &error);
        return error == 0 && flushes ? shared_.flush(file->get()) : error;
      },
      std::move(reply));
}

int Session::commit(const CommitRequest& request, const Asked& asked) {
  const auto file = find(request.handle);
  if (file == nullptr || file->draft == nullptr) return EBADF;
  // Writes that are under way would change a file that others see already.
  for (const Incoming& i : incoming_) {
    if (i.file == file) return EBUSY;
  }
  files_.erase(request.handle);
  const bool durable = (request.flags & kCommitDurable) != 0;
  return carry_out(
      asked, durable || file->draft->replaces_more_than(kMuchBytes),
      [this, file, durable, mode = request.mode, mtime_ns = request.mtime_ns] {
        bool flush_failed = false;
        const int error = file->draft->commit(mode, mtime_ns, durable, flush_failed);
        if (flush_failed) shared_.note_lost_flush();
        return error;
      },
      [this, asked] { send(asked, NoReply()); });
}

int Session::rename(const RenameRequest& request, const Asked& asked) {
  return carry_out(
      asked, frees_much(request.path),
      [this, from = std::string(request.from), keep = (request.flags & kRenameKeep) != 0,
       path = KeptPath(request.path)] {
        return shared_.tree.rename(PathName{from, path.links}, path.name(), keep);
      },
      [this, asked] { send(asked, NoReply()); });
}

int Session::remove(const RemoveRequest& request, const Asked& asked) {
  const bool folder = (request.flags & kRemoveDirectory) != 0;
  return carry_out(
      asked, !folder && frees_much(request.path),
      [this, folder, path = KeptPath(request.path)] {
        return shared_.tree.remove(path.name(), folder);
      },
      [this, asked] { send(asked, NoReply()); });
}

int Session::sum(const SumRequest& request, const Asked& asked) {
  const auto file = find(request.handle);
  if (file == nullptr) return EBADF;
  const auto sum = std::make_shared<std::uint32_t>();
  return carry_out(
      asked, request.length > kSumBytesAtOnce,
      [file, request, sum] { return sum_of(file->get(), request, *sum); },
      [this, sum, asked] { send(asked, SumReply{*sum}); });
}

int Session::extents(const ExtentsRequest& request, const Asked& asked) {
  const auto file = find(request.handle);
  if (file == nullptr) return EBADF;
  const auto reply = std::make_shared<ExtentsReply>();
  return carry_out(
      asked, true,
      [file, from = request.offset, reply] { return extents_of(file->get(), from, *reply); },
      [this, reply, asked] { send(asked, *reply); });
}

}  // namespace weft::files
