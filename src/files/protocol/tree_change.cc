// Changes of a served tree: files, names and folders that clients make, change and remove.
#include "files/protocol/tree.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>

#include "files/protocol/file_attributes.h"
#include "files/protocol/open_beneath.h"
#include "os/clock.h"

namespace weft::files {

int Tree::parent_of(const TreePath& path, os::Fd& folder, std::string& name) const {
  if (!writable_) return EROFS;
  TreePath plain = path;
  while (plain.text.ends_with('/')) plain.text.remove_suffix(1);
  const Place place = locate(plain);
  if (place.root) return EISDIR;
  if (place.fd < 0) return exports_.size() > 1 ? EROFS : ENOENT;
  const std::size_t slash = place.rest.rfind('/');
  const bool has_parent = slash != std::string::npos;
  name = has_parent ? place.rest.substr(slash + 1) : place.rest;
  if (name.empty() || name == "." || name == ".." || name.starts_with(kDraftPrefix)) return EINVAL;
  if (name.size() > NAME_MAX) return ENAMETOOLONG;
  folder = os::Fd(open_bounded(place.fd, has_parent ? place.rest.substr(0, slash) : std::string(),
                               place.links, O_RDONLY | O_DIRECTORY));
  return folder ? 0 : errno;
}

int Tree::place_for_file(const TreePath& path, os::Fd& folder, std::string& name) const {
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  struct stat s {};
  const bool is_folder =
      fstatat(folder.get(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(s.st_mode);
  return is_folder ? EISDIR : 0;
}

namespace {

// A new file under a name that is not listed, locked: nobody takes it for a left-over.
int make_hidden(int folder, os::Fd& file, std::string& name) {
  name = random_draft_name();
  file = os::Fd(
      openat(folder, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno;
  static_cast<void>(flock(file.get(), LOCK_EX | LOCK_NB));  // not every file system has locks
  return 0;
}

}  // namespace

int Tree::create(const TreePath& path, std::uint64_t size, std::unique_ptr<Draft>& out) const {
  os::Fd folder;
  std::string name;
  if (const int error = place_for_file(path, folder, name); error != 0) return error;
  os::Fd file(openat(folder.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  std::string hidden;
  // Neither NFS nor FUSE have files without a name, nor has overlayfs in older kernels.
  if (!file && (errno == EOPNOTSUPP || errno == EISDIR)) {
    if (const int error = make_hidden(folder.get(), file, hidden); error != 0) return error;
  }
  if (!file) return errno;
  // It gets a name that is not listed on its way to its own. As make_hidden().
  if (hidden.empty()) static_cast<void>(flock(file.get(), LOCK_EX | LOCK_NB));
  out = std::make_unique<Draft>(std::move(folder), std::move(name), std::move(file), hidden);
  const int error = reserve(out->fd(), size);
  if (error != 0) out.reset();
  return error;
}

namespace {

// FNV-1a: names that tell what belongs together, no secrets.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const char c : text) h = (h ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return h;
}

}  // namespace

int Tree::draft(const TreePath& path, std::uint64_t size, std::uint64_t identity,
                std::unique_ptr<Draft>& out, std::uint64_t& there) const {
  os::Fd folder;
  std::string name;
  if (const int error = place_for_file(path, folder, name); error != 0) return error;
  char hidden[80];
  std::snprintf(hidden, sizeof hidden, "%.*s%016llx-%016llx", static_cast<int>(kDraftPrefix.size()),
                kDraftPrefix.data(), static_cast<unsigned long long>(hash(name)),
                static_cast<unsigned long long>(identity ^ (size * 0x9e3779b97f4a7c15U)));
  os::Fd file;
  for (int tries = 0;; ++tries) {
    file = os::Fd(
        openat(folder.get(), hidden, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    if (!file) return errno;
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? EBUSY : errno;
    if (is_named(folder.get(), hidden, file.get())) break;
    if (tries == 8) return EBUSY;
  }
  let_wait(file.get());
  out = std::make_unique<Draft>(std::move(folder), std::move(name), std::move(file), hidden, true);
  struct stat s {};
  if (fstat(out->fd(), &s) != 0) return errno;
  there = static_cast<std::uint64_t>(s.st_size);
  int error = there > size && ftruncate(out->fd(), static_cast<off_t>(size)) != 0 ? errno : 0;
  there = std::min(there, size);
  if (error == 0) error = reserve(out->fd(), size);
  if (error != 0) out->discard();
  return error;
}

int Tree::edit(const TreePath& path, std::uint32_t mode, std::uint32_t flags, os::Fd& file,
               FileState& out) const {
  os::Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  // Opening a device or a pipe would already do something.
  struct stat s {};
  const bool is_there = fstatat(folder.get(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0;
  if (is_there && S_ISDIR(s.st_mode)) return EISDIR;
  if (is_there && S_ISLNK(s.st_mode)) return ELOOP;
  if (is_there && !S_ISREG(s.st_mode)) return EINVAL;
  int how = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  if ((flags & kEditCreate) != 0) how |= O_CREAT;
  if ((flags & kEditExclusive) != 0) how |= O_EXCL;
  file = os::Fd(openat(folder.get(), name.c_str(), how, mode & 0777U));
  if (!file) return errno;
  let_wait(file.get());
  int error = 0;
  out = state_of(file.get(), &error);
  if (error == 0 && !S_ISREG(out.attributes.mode)) error = EINVAL;
  if (error == 0 && (flags & kEditTruncate) != 0 && out.attributes.size != 0) {
    if (ftruncate(file.get(), 0) != 0) return errno;
    out = state_of(file.get(), &error);
  }
  return error;
}

int Tree::set(const TreePath& path, std::uint32_t what, const Attributes& to,
              Attributes& out) const {
  if (!writable_) return EROFS;
  const Place place = locate(path);
  if (place.fd < 0) return place.root ? EROFS : ENOENT;
  const os::Fd found(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
  if (!found) return errno;
  int error = 0;
  out = attributes_of(found.get(), &error);
  if (error != 0) return error;
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(to.mtime_ns)};
  if (S_ISLNK(out.mode)) {
    if ((what & kSetSize) != 0) return EINVAL;
    if ((what & kSetMode) != 0) return EOPNOTSUPP;
    if ((what & kSetTime) != 0 && utimensat(found.get(), "", times, AT_EMPTY_PATH) != 0) {
      return errno;
    }
  } else {
    // A path descriptor stands for a name only.
    const std::string name = proc_name(found.get());
    if ((what & kSetSize) != 0) {
      if (S_ISDIR(out.mode)) return EISDIR;
      if (!S_ISREG(out.mode)) return EINVAL;
      if (truncate(name.c_str(), static_cast<off_t>(to.size)) != 0) return errno;
    }
    if ((what & kSetMode) != 0)
      error = set_permissions(found.get(), to.mode, (what & kAnyMode) != 0);
    if (error != 0) return error;
    if ((what & kSetTime) != 0 && utimensat(AT_FDCWD, name.c_str(), times, 0) != 0) return errno;
  }
  out = attributes_of(found.get(), &error);
  return error;
}

int Tree::find(const TreePath& path, bool changes, os::Fd& out) const {
  if (changes && !writable_) return EROFS;
  const Place place = locate(path);
  if (place.fd < 0) return place.root ? EROFS : ENOENT;
  out = os::Fd(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
  return out ? 0 : errno;
}

// `call` takes folder and name of each, and answers as a system call.
template <class Call>
int Tree::with_both(const TreePath& from, const TreePath& to, Call call) const {
  os::Fd old_folder;
  os::Fd new_folder;
  std::string old_name;
  std::string new_name;
  if (const int error = parent_of(from, old_folder, old_name); error != 0) return error;
  if (const int error = parent_of(to, new_folder, new_name); error != 0) return error;
  const int done = call(old_folder.get(), old_name.c_str(), new_folder.get(), new_name.c_str());
  return done == 0 ? 0 : errno;
}

int Tree::link(const TreePath& from, const TreePath& to) const {
  return with_both(from, to, [](int old_folder, const char* old, int folder, const char* name) {
    return linkat(old_folder, old, folder, name, 0);
  });
}

int Tree::open_to_flush(const TreePath& path, os::Fd& out) const {
  if (!writable_) return EROFS;
  const Place place = locate(path);
  if (place.root) return 0;
  if (place.fd < 0) return ENOENT;
  const os::Fd found(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
  struct stat s {};
  if (!found || fstat(found.get(), &s) != 0) return errno;
  if (S_ISLNK(s.st_mode)) return ELOOP;
  if (!S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)) return EINVAL;
  out = os::Fd(::open(proc_name(found.get()).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return out ? 0 : errno;
}

int Tree::rename(const TreePath& from, const TreePath& to, bool keep) const {
  const unsigned flags = keep ? RENAME_NOREPLACE : 0;
  return with_both(from, to, [=](int old_folder, const char* old, int folder, const char* name) {
    return renameat2(old_folder, old, folder, name, flags);
  });
}

int Tree::make_directory(const TreePath& path, std::uint32_t mode) const {
  os::Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  return mkdirat(folder.get(), name.c_str(), mode & (0777U | S_ISVTX)) == 0 ? 0 : errno;
}

int Tree::remove(const TreePath& path, bool directory, bool drafts) const {
  os::Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  const int how = directory ? AT_REMOVEDIR : 0;
  if (unlinkat(folder.get(), name.c_str(), how) == 0) return 0;
  if (!directory || !drafts || errno != ENOTEMPTY) return errno;
  if (!remove_drafts(folder.get(), name)) return errno;
  return unlinkat(folder.get(), name.c_str(), how) == 0 ? 0 : errno;
}

int Tree::symlink(const TreePath& path, std::string_view target) const {
  os::Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  return symlinkat(std::string(target).c_str(), folder.get(), name.c_str()) == 0 ? 0 : errno;
}

}  // namespace weft::files
