#include "files/protocol/draft.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <vector>

#include "files/protocol/file_attributes.h"
#include "files/protocol/folder_stream.h"
#include "files/protocol/open_beneath.h"
#include "os/clock.h"
#include "os/report_of_close.h"

namespace weft::files {
namespace {

// A partial file that nobody has resumed for this long is removed.
constexpr time_t kDraftKeptS = 7 * 24 * 3600;

}  // namespace

std::string random_draft_name() {
  std::uint64_t number = 0;
  static_cast<void>(getrandom(&number, sizeof number, 0));
  char name[64];
  std::snprintf(name, sizeof name, "%.*s%016llx", static_cast<int>(kDraftPrefix.size()),
                kDraftPrefix.data(), static_cast<unsigned long long>(number));
  return name;
}

bool is_named(int folder, const std::string& name, int fd) {
  struct stat by_name {};
  struct stat open_file {};
  return fstatat(folder, name.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstat(fd, &open_file) == 0 && by_name.st_ino == open_file.st_ino &&
         by_name.st_dev == open_file.st_dev && S_ISREG(open_file.st_mode) &&
         open_file.st_nlink == 1;
}

void Draft::discard() {
  if (!hidden_.empty()) unlinkat(folder_.get(), hidden_.c_str(), 0);
  hidden_.clear();
}

bool Draft::replaces_more_than(std::uint64_t bytes) const {
  struct stat s {};
  return fstatat(folder_.get(), name_.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0 &&
         bytes_on_disk(s) > bytes;
}

int Draft::commit(std::uint32_t mode, std::int64_t mtime_ns, std::uint32_t flags,
                  bool& flush_failed) {
  const bool durable = (flags & kCommitDurable) != 0;
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(mtime_ns)};
  if (fchmod(file_.get(), mode & 07777U) != 0 || futimens(file_.get(), times) != 0) return errno;
  flush_failed = durable && fsync(file_.get()) != 0;
  if (flush_failed) {
    const int error = errno;
    discard();
    return error;
  }
  if (const int error = os::report_of_close(file_.get()); error != 0) {
    discard();
    return error;
  }
  // A link to a file replaces nothing, a rename does: so by way of a second name.
  const std::string between = hidden_.empty() ? random_draft_name() : hidden_;
  if (hidden_.empty() && linkat(AT_FDCWD, proc_name(file_.get()).c_str(), folder_.get(),
                                between.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return errno;
  }
  if (renameat(folder_.get(), between.c_str(), folder_.get(), name_.c_str()) != 0) {
    const int error = errno;
    unlinkat(folder_.get(), between.c_str(), 0);
    return error;
  }
  hidden_.clear();
  const bool flushes_name = durable && (flags & kCommitNoName) == 0;
  const int error = flushes_name ? flush(folder_.get()) : 0;
  flush_failed = error != 0;
  return error;
}

int reserve(int fd, std::uint64_t size) {
  const bool full = size != 0 &&
                    fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size)) != 0 &&
                    errno != EOPNOTSUPP;
  return full ? errno : 0;
}

int flush(int fd) {
  if (fsync(fd) == 0) return 0;
  // Some file systems flush no folder by itself (vboxsf, AFS): then all that they have.
  return errno == EINVAL && syncfs(fd) == 0 ? 0 : errno;
}

os::Fd remove_if_old(int folder, const char* name) {
  const auto is_old = [](const struct stat& s) {
    return S_ISREG(s.st_mode) && s.st_mtime < os::wall_seconds() - kDraftKeptS;
  };
  struct stat s {};
  if (fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !is_old(s)) return {};
  os::Fd file(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0) return {};
  if (fstat(file.get(), &s) != 0 || !is_old(s) || !is_named(folder, name, file.get())) return {};
  if (unlinkat(folder, name, 0) != 0) return {};
  return file;
}

bool remove_drafts(int parent, const std::string& name) {
  const FolderStream folder(
      os::Fd(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  if (!folder.good()) return false;
  const int fd = dirfd(folder.stream());
  std::vector<std::string> drafts;
  while (const dirent* entry = readdir(folder.stream())) {
    const std::string_view one = entry->d_name;
    if (one == "." || one == "..") continue;
    if (one.starts_with(kDraftPrefix)) drafts.emplace_back(one);
    errno = ENOTEMPTY;
    if (!one.starts_with(kDraftPrefix)) return false;
  }
  for (const std::string& draft : drafts) {
    const os::Fd file(openat(fd, draft.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !is_named(fd, draft, file.get())) {
      errno = ENOTEMPTY;
      return false;
    }
    unlinkat(fd, draft.c_str(), 0);
  }
  return true;
}

}  // namespace weft::files
