#include "files/protocol/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "os/clock.h"

namespace weft::files {
namespace {

// A partial file that nobody has resumed for this long is removed.
constexpr time_t kDraftKeptS = 7 * 24 * 3600;

int open_beneath(int folder, const std::string& path, int flags, std::uint64_t resolve = 0) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve;
  for (int tries = 0;; ++tries) {
    const long fd =
        syscall(SYS_openat2, folder, path.empty() ? "." : path.c_str(), &how, sizeof how);
    // EAGAIN: something was renamed while the kernel checked; it asks to be asked again.
    if (fd >= 0 || errno != EAGAIN || tries == 16) return static_cast<int>(fd);
  }
}

// As open_beneath(), and no link is followed behind the first `links` octets of the path.
int open_bounded(int folder, const std::string& path, std::size_t links, int flags) {
  if (links >= path.size()) return open_beneath(folder, path, flags);
  const std::size_t rest = path.find_first_not_of('/', links);
  const bool border = links == 0 || path[links - 1] == '/' || path[links] == '/';
  if (!border) {
    errno = EINVAL;
    return -1;
  }
  const os::Fd from(open_beneath(folder, path.substr(0, links), O_PATH | O_DIRECTORY));
  if (!from) return -1;
  return open_beneath(from.get(), rest == std::string::npos ? "" : path.substr(rest), flags,
                      RESOLVE_NO_SYMLINKS);
}

// statx() of `name` in the folder `at`, or of `at` itself if it is "". Follows no link.  An errno
int look_at(int at, const char* name, struct statx& out) {
  constexpr int kFlags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_STATX_SYNC_AS_STAT;
  return statx(at, name, kFlags, STATX_BASIC_STATS | STATX_BTIME, &out) == 0 ? 0 : errno;
}

std::int64_t ns_of(const statx_timestamp& t) {
  return std::int64_t{t.tv_sec} * os::kNsPerSecond + std::int64_t{t.tv_nsec};
}

// File systems give the number of a removed file to the next one. The time of birth tells them
// apart, where there is one.
std::uint64_t file_id_of(const struct statx& s) {
  const std::uint64_t device = std::uint64_t{s.stx_dev_major} << 20U | s.stx_dev_minor;
  std::uint64_t id = s.stx_ino ^ device << 40U;
  if ((s.stx_mask & STATX_BTIME) != 0) {
    id ^= static_cast<std::uint64_t>(ns_of(s.stx_btime)) * 0x9e3779b97f4a7c15U;
  }
  return std::max<std::uint64_t>(id, 1);
}

Attributes attributes_from(const struct statx& s) {
  Attributes out;
  out.mode = s.stx_mode;
  out.size = s.stx_size;
  out.mtime_ns = ns_of(s.stx_mtime);
  out.file_id = file_id_of(s);
  return out;
}

std::string proc_name(int fd) {
  char name[32];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  return name;
}

std::string random_name() {
  std::uint64_t number = 0;
  static_cast<void>(getrandom(&number, sizeof number, 0));
  char name[64];
  std::snprintf(name, sizeof name, "%.*s%016llx", static_cast<int>(kDraftPrefix.size()),
                kDraftPrefix.data(), static_cast<unsigned long long>(number));
  return name;
}

// `path` with every symbolic link followed; empty with errno if there is no such file.
std::string real_path(const std::string& path) {
  char* full = realpath(path.c_str(), nullptr);
  std::string out = full != nullptr ? full : "";
  std::free(full);
  return out;
}

// The last name in a path. For "." and the like, the name that the file itself has.
std::string shared_name(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::string name(path.substr(path.rfind('/') + 1));
  if (!name.empty() && name != "." && name != "..") return name;
  const std::string real = real_path(std::string(path));
  return real.substr(real.rfind('/') + 1);
}

}  // namespace

bool is_named(int folder, const std::string& name, int fd) {
  struct stat by_name {};
  struct stat open_file {};
  return fstatat(folder, name.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstat(fd, &open_file) == 0 && by_name.st_ino == open_file.st_ino &&
         by_name.st_dev == open_file.st_dev && S_ISREG(open_file.st_mode) &&
         open_file.st_nlink == 1;
}

Listing::Listing(int fd) : stream_(fd >= 0 ? fdopendir(fd) : nullptr) {
  if (fd >= 0 && stream_ == nullptr) close(fd);
}
Listing::~Listing() {
  if (stream_ != nullptr) closedir(stream_);
}

namespace {

// How coarse the times of changes are: a clock tick, or what a server or program of another machine
// makes of it. File systems of the second kind: NFS, FUSE, SMB.
std::int64_t tick_ns(int fd) {
  struct statfs where {};
  if (fstatfs(fd, &where) != 0) return 2 * os::kNsPerSecond;
  switch (static_cast<std::uint32_t>(where.f_type)) {
    case 0x6969U:
    case 0x65735546U:
    case 0xff534d42U:
    case 0xfe534d42U: return 2 * os::kNsPerSecond;
    default: return 20000000;
  }
}

bool is_fresh(int fd, std::int64_t changed_ns) {
  const std::int64_t age = os::clock_ns(CLOCK_REALTIME) - changed_ns;
  return std::abs(age) < 2 * os::kNsPerSecond && std::abs(age) < tick_ns(fd);
}

}  // namespace

std::uint32_t stamp_of(int fd, std::int64_t changed_ns) {
  if (is_fresh(fd, changed_ns)) return kFreshStamp;
  const std::uint64_t mixed = static_cast<std::uint64_t>(changed_ns) * 0x9e3779b97f4a7c15U;
  return std::max(static_cast<std::uint32_t>(mixed >> 32U), kFreshStamp + 1);
}

Attributes attributes_of(int fd, int* error) {
  struct statx s {};
  *error = look_at(fd, "", s);
  Attributes out = attributes_from(s);
  if (*error == 0 && S_ISREG(out.mode)) out.stamp = stamp_of(fd, ns_of(s.stx_ctime));
  return out;
}

int set_attributes(int fd, std::uint32_t what, const Attributes& to) {
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(to.mtime_ns)};
  if ((what & kSetSize) != 0 && ftruncate(fd, static_cast<off_t>(to.size)) != 0) return errno;
  if ((what & kSetMode) != 0 && fchmod(fd, to.mode & 0777U) != 0) return errno;
  if ((what & kSetTime) != 0 && futimens(fd, times) != 0) return errno;
  return 0;
}

void Draft::discard() {
  if (!hidden_.empty()) unlinkat(folder_.get(), hidden_.c_str(), 0);
  hidden_.clear();
}

int Draft::commit(std::uint32_t mode, std::int64_t mtime_ns, bool durable) {
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(mtime_ns)};
  if (fchmod(file_.get(), mode & 0777U) != 0 || futimens(file_.get(), times) != 0) return errno;
  if (durable && fsync(file_.get()) != 0) return errno;
  // A link to a file replaces nothing, a rename does: so by way of a second name.
  const std::string between = hidden_.empty() ? random_name() : hidden_;
  if (hidden_.empty() && linkat(AT_FDCWD, proc_name(file_.get()).c_str(), folder_.get(),
                                between.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return errno;
  }
  if (renameat(folder_.get(), between.c_str(), folder_.get(), name_.c_str()) != 0) {
    const int error = errno;
    unlinkat(folder_.get(), between.c_str(), 0);
    return error;
  }
  return durable && fsync(folder_.get()) != 0 ? errno : 0;
}

Outcome<Tree> Tree::open(const std::vector<std::string>& folders, bool writable) {
  Tree tree;
  tree.writable_ = writable;
  for (const std::string& folder : folders) {
    Export one;
    one.fd = os::Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!one.fd) return failed(errno, "cannot serve " + folder);
    if (folders.size() > 1) {
      one.name = shared_name(folder);
      const bool taken = std::any_of(tree.exports_.begin(), tree.exports_.end(),
                                     [&](const Export& e) { return e.name == one.name; });
      if (taken || one.name.empty()) {
        return failed(EEXIST, "cannot serve " + folder,
                      "two folders would be called '" + one.name + "'; rename one");
      }
    }
    tree.exports_.push_back(std::move(one));
  }
  return tree;
}

Outcome<Tree> Tree::open_files(const std::vector<std::string>& files) {
  Tree tree;
  for (const std::string& path : files) {
    // Links in what the owner names are followed here, once: those that clients meet may not lead
    // out of the folder.
    const std::string real = real_path(path);
    if (real.empty()) return failed(errno, "cannot serve " + path);
    const std::string folder = real.substr(0, real.rfind('/') + 1);
    const std::string name = shared_name(path);
    Export one{name, os::Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
               shared_name(real)};
    struct stat s {};
    if (!one.fd || fstatat(one.fd.get(), one.file.c_str(), &s, AT_SYMLINK_NOFOLLOW) != 0) {
      return failed(errno, "cannot serve " + path);
    }
    if (!S_ISREG(s.st_mode)) return failed(EINVAL, "cannot serve " + path, "it is no file");
    for (const Export& other : tree.exports_) {
      if (other.name != name) continue;
      return failed(EEXIST, "cannot serve " + path,
                    "two files would be called '" + name + "'; rename one");
    }
    tree.exports_.push_back(std::move(one));
  }
  return tree;
}

Tree::Place Tree::locate(const TreePath& name) const {
  std::string_view path = name.text;
  const auto place = [&](int fd) {
    const std::size_t in_front = name.text.size() - path.size();
    Place out{fd, std::string(path), name.links};
    if (name.links != std::string_view::npos) out.links -= std::min(in_front, name.links);
    return out;
  };
  path.remove_prefix(std::min(path.find_first_not_of('/'), path.size()));
  if (exports_.size() == 1 && exports_.front().file.empty())
    return place(exports_.front().fd.get());
  Place root;
  root.root = true;
  if (path.empty() || path == ".") return root;
  const std::size_t slash = std::min(path.find('/'), path.size());
  for (const Export& e : exports_) {
    if (e.name != path.substr(0, slash)) continue;
    path.remove_prefix(slash);
    path.remove_prefix(std::min(path.find_first_not_of('/'), path.size()));
    if (e.file.empty()) return place(e.fd.get());
    return path.empty() ? Place{e.fd.get(), e.file} : Place{};
  }
  return {};
}

int Tree::stat(const TreePath& path, Attributes& out) const {
  const Place place = locate(path);
  if (place.root) {
    out.mode = S_IFDIR | 0555;
    return 0;
  }
  if (place.fd < 0) return ENOENT;
  const os::Fd fd(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
  if (!fd) return errno;
  int error = 0;
  out = attributes_of(fd.get(), &error);
  return error;
}

int Tree::usage(const TreePath& path, Usage& out) const {
  const Place place = locate(path);
  if (place.fd < 0 && !place.root) return ENOENT;
  os::Fd found;
  if (!place.root) {
    found = os::Fd(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
    if (!found) return errno;
  }
  struct statvfs s {};
  if (fstatvfs(place.root ? exports_.front().fd.get() : found.get(), &s) != 0) return errno;
  out.bytes = std::uint64_t{s.f_blocks} * s.f_frsize;
  out.free_bytes = std::uint64_t{s.f_bfree} * s.f_frsize;
  out.available_bytes = std::uint64_t{s.f_bavail} * s.f_frsize;
  out.files = s.f_files;
  out.free_files = s.f_ffree;
  return 0;
}

int Tree::open_file(const TreePath& path, bool direct, os::Fd& file, Attributes& out) const {
  const Place place = locate(path);
  if (place.root) return EISDIR;
  if (place.fd < 0) return ENOENT;
  // By way of a path descriptor: opening a device or a pipe would already do something.
  const os::Fd found(open_bounded(place.fd, place.rest, place.links, O_PATH));
  if (!found) return errno;
  int error = 0;
  out = attributes_of(found.get(), &error);
  if (error != 0) return error;
  if (S_ISDIR(out.mode)) return EISDIR;
  if (!S_ISREG(out.mode)) return EINVAL;
  const std::string name = proc_name(found.get());
  file = os::Fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)));
  if (!file && direct && errno == EINVAL) file = os::Fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  return file ? 0 : errno;
}

int Tree::read_link(const TreePath& path, std::string& target) const {
  const Place place = locate(path);
  if (place.fd < 0) return place.root ? EINVAL : ENOENT;
  const os::Fd found(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
  if (!found) return errno;
  char text[PATH_MAX];
  const ssize_t length = readlinkat(found.get(), "", text, sizeof text);
  if (length < 0) return errno == ENOENT ? EINVAL : errno;
  target.assign(text, static_cast<std::size_t>(length));
  return 0;
}

namespace {

// A draft that a server or client which has ended left behind, long ago. Whoever has it in use
// holds its lock.
void remove_if_old(int folder, const char* name) {
  const auto is_old = [](const struct stat& s) {
    return S_ISREG(s.st_mode) && s.st_mtime < time(nullptr) - kDraftKeptS;
  };
  struct stat s {};
  if (fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !is_old(s)) return;
  const os::Fd file(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0) return;
  if (fstat(file.get(), &s) != 0 || !is_old(s) || !is_named(folder, name, file.get())) return;
  unlinkat(folder, name, 0);
}

}  // namespace

int Tree::list_exports(std::uint64_t cursor, std::span<std::uint8_t> room, std::uint64_t& next,
                       std::uint32_t& bytes) const {
  for (std::size_t i = cursor; i < exports_.size(); ++i) {
    int error = 0;
    const Export& one = exports_[i];
    const os::Fd file(one.file.empty() ? -1 : open_beneath(one.fd.get(), one.file, O_PATH));
    const Entry entry{one.name, attributes_of(file ? file.get() : one.fd.get(), &error)};
    const std::size_t took = encode(entry, room.subspan(bytes));
    if (took == 0) {
      next = i;
      return i == cursor ? EINVAL : 0;
    }
    bytes += static_cast<std::uint32_t>(took);
  }
  next = 0;
  return 0;
}

int Tree::list(const TreePath& path, std::uint64_t cursor, std::span<std::uint8_t> room,
               std::uint64_t& next, std::uint32_t& bytes, std::unique_ptr<Listing>& listing) const {
  bytes = 0;
  next = 0;
  const Place place = locate(path);
  if (place.root) return list_exports(cursor, room, next, bytes);
  if (place.fd < 0) return ENOENT;
  if (listing == nullptr) {
    if (cursor != 0) return ESTALE;
    const int fd = open_bounded(place.fd, place.rest, place.links, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return errno;
    listing = std::make_unique<Listing>(fd);
    if (!listing->good()) return ENOMEM;
  }
  const int error = fill(*listing, room, next, bytes);
  if (error != 0 || next == 0) listing.reset();
  return error;
}

// As many entries as there is room for.
int Tree::fill(Listing& listing, std::span<std::uint8_t> room, std::uint64_t& next,
               std::uint32_t& bytes) const {
  const int fd = dirfd(listing.stream());
  for (;;) {
    const long here = telldir(listing.stream());
    errno = 0;
    const dirent* found = readdir(listing.stream());
    if (found == nullptr) return errno;
    const std::string_view name = found->d_name;
    if (name == "." || name == "..") continue;
    if (name.starts_with(kDraftPrefix)) {
      if (writable_) remove_if_old(fd, found->d_name);
      continue;
    }
    struct statx s {};
    const int error = look_at(fd, found->d_name, s);
    if (error == ENOENT) continue;  // gone meanwhile
    if (error != 0) return error;
    const std::size_t took = encode(Entry{name, attributes_from(s)}, room.subspan(bytes));
    if (took == 0) {
      seekdir(listing.stream(), here);
      next = static_cast<std::uint64_t>(here);
      return bytes == 0 ? EINVAL : 0;
    }
    bytes += static_cast<std::uint32_t>(took);
  }
}

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

// A full disk is reported now rather than after an hour. Not every file system can tell.
int reserve(int fd, std::uint64_t size) {
  const bool full = size != 0 &&
                    fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size)) != 0 &&
                    errno != EOPNOTSUPP;
  return full ? errno : 0;
}

}  // namespace

int Tree::create(const TreePath& path, std::uint64_t size, std::unique_ptr<Draft>& out) {
  os::Fd folder;
  std::string name;
  if (const int error = place_for_file(path, folder, name); error != 0) return error;
  os::Fd file(openat(folder.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return errno;
  if (const int error = reserve(file.get(), size); error != 0) return error;
  out = std::make_unique<Draft>(std::move(folder), std::move(name), std::move(file));
  return 0;
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
  out = std::make_unique<Draft>(std::move(folder), std::move(name), std::move(file), hidden);
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
               Attributes& out) const {
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
  int error = 0;
  out = attributes_of(file.get(), &error);
  if (error == 0 && !S_ISREG(out.mode)) error = EINVAL;
  if (error == 0 && (flags & kEditTruncate) != 0 && out.size != 0) {
    if (ftruncate(file.get(), 0) != 0) return errno;
    out = attributes_of(file.get(), &error);
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
    if ((what & kSetMode) != 0 && chmod(name.c_str(), to.mode & 0777U) != 0) return errno;
    if ((what & kSetTime) != 0 && utimensat(AT_FDCWD, name.c_str(), times, 0) != 0) return errno;
  }
  out = attributes_of(found.get(), &error);
  return error;
}

int Tree::rename(const TreePath& from, const TreePath& to, bool keep) const {
  os::Fd old_folder;
  os::Fd new_folder;
  std::string old_name;
  std::string new_name;
  if (const int error = parent_of(from, old_folder, old_name); error != 0) return error;
  if (const int error = parent_of(to, new_folder, new_name); error != 0) return error;
  return renameat2(old_folder.get(), old_name.c_str(), new_folder.get(), new_name.c_str(),
                   keep ? RENAME_NOREPLACE : 0) == 0
             ? 0
             : errno;
}

int Tree::make_directory(const TreePath& path, std::uint32_t mode) const {
  os::Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  return mkdirat(folder.get(), name.c_str(), mode & 0777U) == 0 ? 0 : errno;
}

namespace {

// A folder in which nothing is listed is empty for its clients: what it hides goes with it, unless
// somebody writes it. Returns whether there was nothing else; errno is ENOTEMPTY otherwise.
bool remove_drafts(int parent, const std::string& name) {
  const int fd = openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const Listing folder(fd);
  if (!folder.good()) return false;
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

}  // namespace

int Tree::remove(const TreePath& path, bool directory) const {
  os::Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  const int how = directory ? AT_REMOVEDIR : 0;
  if (unlinkat(folder.get(), name.c_str(), how) == 0) return 0;
  if (!directory || errno != ENOTEMPTY || !remove_drafts(folder.get(), name)) return errno;
  return unlinkat(folder.get(), name.c_str(), how) == 0 ? 0 : errno;
}

int Tree::symlink(const TreePath& path, std::string_view target) const {
  os::Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  return symlinkat(std::string(target).c_str(), folder.get(), name.c_str()) == 0 ? 0 : errno;
}

}  // namespace weft::files
