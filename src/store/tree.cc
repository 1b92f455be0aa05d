#include "store/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>

namespace weft::store {
namespace {

// Files that clients and this server make while a transfer runs. Not listed, not served.
constexpr std::string_view kDraftPrefix = ".weft-draft-";
// What nobody has gone on with for so long is removed.
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
  const Fd from(open_beneath(folder, path.substr(0, links), O_PATH | O_DIRECTORY));
  if (!from) return -1;
  return open_beneath(from.get(), rest == std::string::npos ? "" : path.substr(rest), flags,
                      RESOLVE_NO_SYMLINKS);
}

Attributes attributes_from(const struct stat& s) {
  Attributes out;
  out.mode = s.st_mode;
  out.size = static_cast<std::uint64_t>(s.st_size);
  out.mtime_ns = std::int64_t{s.st_mtim.tv_sec} * 1000000000 + s.st_mtim.tv_nsec;
  out.file_id = s.st_ino ^ (static_cast<std::uint64_t>(s.st_dev) << 40U);
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

timespec time_of(std::int64_t ns) {
  constexpr std::int64_t kSecond = 1000000000;
  const std::int64_t part = ((ns % kSecond) + kSecond) % kSecond;
  return {static_cast<time_t>((ns - part) / kSecond), static_cast<long>(part)};
}

// `path` with every symbolic link followed; empty with errno if there is no such file.
std::string real_path(const std::string& path) {
  char* full = realpath(path.c_str(), nullptr);
  std::string out = full != nullptr ? full : "";
  std::free(full);
  return out;
}

// What a path calls its file; of "." and the like the file's own name.
std::string shared_name(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::string name(path.substr(path.rfind('/') + 1));
  if (!name.empty() && name != "." && name != "..") return name;
  const std::string real = real_path(std::string(path));
  return real.substr(real.rfind('/') + 1);
}

class Folder {
 public:
  explicit Folder(int fd) : dir_(fdopendir(fd)) {
    if (dir_ == nullptr) close(fd);
  }
  ~Folder() {
    if (dir_ != nullptr) closedir(dir_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] DIR* get() const { return dir_; }

 private:
  DIR* dir_;
};

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}
Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Attributes attributes_of(int fd, int* error) {
  struct stat s {};
  *error = fstat(fd, &s) == 0 ? 0 : errno;
  return attributes_from(s);
}

int set_attributes(int fd, std::uint32_t what, const Attributes& to) {
  const timespec times[2] = {{0, UTIME_OMIT}, time_of(to.mtime_ns)};
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
  const timespec times[2] = {{0, UTIME_OMIT}, time_of(mtime_ns)};
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
    one.fd = Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
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
    Export one{name, Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
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
  const Fd fd(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
  if (!fd) return errno;
  int error = 0;
  out = attributes_of(fd.get(), &error);
  return error;
}

int Tree::open_file(const TreePath& path, bool direct, Fd& file, Attributes& out) const {
  const Place place = locate(path);
  if (place.root) return EISDIR;
  if (place.fd < 0) return ENOENT;
  // By way of a path descriptor: opening a device or a pipe would already do something.
  const Fd found(open_bounded(place.fd, place.rest, place.links, O_PATH));
  if (!found) return errno;
  int error = 0;
  out = attributes_of(found.get(), &error);
  if (error != 0) return error;
  if (S_ISDIR(out.mode)) return EISDIR;
  if (!S_ISREG(out.mode)) return EINVAL;
  const std::string name = proc_name(found.get());
  file = Fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)));
  if (!file && direct && errno == EINVAL) file = Fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  return file ? 0 : errno;
}

int Tree::read_link(const TreePath& path, std::string& target) const {
  const Place place = locate(path);
  if (place.fd < 0) return place.root ? EINVAL : ENOENT;
  const Fd found(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
  if (!found) return errno;
  char text[PATH_MAX];
  const ssize_t length = readlinkat(found.get(), "", text, sizeof text);
  if (length < 0) return errno == ENOENT ? EINVAL : errno;
  target.assign(text, static_cast<std::size_t>(length));
  return 0;
}

namespace {

// Whether `name` is this very file: it may have got its final name before it was locked.
bool is_named(int folder, const std::string& name, int fd) {
  struct stat by_name {};
  struct stat open_file {};
  return fstatat(folder, name.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstat(fd, &open_file) == 0 && by_name.st_ino == open_file.st_ino &&
         by_name.st_dev == open_file.st_dev && S_ISREG(open_file.st_mode) &&
         open_file.st_nlink == 1;
}

// A draft that a server or client which has ended left behind, long ago. Whoever has it in use
// holds its lock.
void remove_if_old(int folder, const char* name) {
  const auto is_old = [](const struct stat& s) {
    return S_ISREG(s.st_mode) && s.st_mtime < time(nullptr) - kDraftKeptS;
  };
  struct stat s {};
  if (fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !is_old(s)) return;
  const Fd file(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
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
    const Fd file(one.file.empty() ? -1 : open_beneath(one.fd.get(), one.file, O_PATH));
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
               std::uint64_t& next, std::uint32_t& bytes) const {
  bytes = 0;
  next = 0;
  const Place place = locate(path);
  if (place.root) return list_exports(cursor, room, next, bytes);
  if (place.fd < 0) return ENOENT;
  const int fd = open_bounded(place.fd, place.rest, place.links, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return errno;
  const Folder folder(fd);
  if (folder.get() == nullptr) return ENOMEM;
  // The cursor is the file system's own, which stays valid while the folder changes.
  if (cursor != 0) seekdir(folder.get(), static_cast<long>(cursor));
  for (;;) {
    const long here = telldir(folder.get());
    errno = 0;
    const dirent* found = readdir(folder.get());
    if (found == nullptr) return errno;
    const std::string_view name = found->d_name;
    if (name == "." || name == "..") continue;
    if (name.starts_with(kDraftPrefix)) {
      if (writable_) remove_if_old(fd, found->d_name);
      continue;
    }
    struct stat s {};
    if (fstatat(fd, found->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0) continue;  // gone meanwhile
    const std::size_t took = encode(Entry{name, attributes_from(s)}, room.subspan(bytes));
    if (took == 0) {
      next = static_cast<std::uint64_t>(here);
      return bytes == 0 ? EINVAL : 0;
    }
    bytes += static_cast<std::uint32_t>(took);
  }
}

int Tree::parent_of(const TreePath& path, Fd& folder, std::string& name) const {
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
  folder = Fd(open_bounded(place.fd, has_parent ? place.rest.substr(0, slash) : std::string(),
                           place.links, O_RDONLY | O_DIRECTORY));
  return folder ? 0 : errno;
}

int Tree::place_for_file(const TreePath& path, Fd& folder, std::string& name) const {
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
  Fd folder;
  std::string name;
  if (const int error = place_for_file(path, folder, name); error != 0) return error;
  Fd file(openat(folder.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
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
  Fd folder;
  std::string name;
  if (const int error = place_for_file(path, folder, name); error != 0) return error;
  char hidden[80];
  std::snprintf(hidden, sizeof hidden, "%.*s%016llx-%016llx", static_cast<int>(kDraftPrefix.size()),
                kDraftPrefix.data(), static_cast<unsigned long long>(hash(name)),
                static_cast<unsigned long long>(identity ^ (size * 0x9e3779b97f4a7c15U)));
  Fd file;
  for (int tries = 0;; ++tries) {
    file = Fd(
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

int Tree::edit(const TreePath& path, std::uint32_t mode, std::uint32_t flags, Fd& file,
               Attributes& out) const {
  Fd folder;
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
  file = Fd(openat(folder.get(), name.c_str(), how, mode & 0777U));
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
  const Fd found(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
  if (!found) return errno;
  int error = 0;
  out = attributes_of(found.get(), &error);
  if (error != 0) return error;
  const timespec times[2] = {{0, UTIME_OMIT}, time_of(to.mtime_ns)};
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
  Fd old_folder;
  Fd new_folder;
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
  Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  return mkdirat(folder.get(), name.c_str(), mode & 0777U) == 0 ? 0 : errno;
}

int Tree::remove(const TreePath& path, bool directory) const {
  Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  return unlinkat(folder.get(), name.c_str(), directory ? AT_REMOVEDIR : 0) == 0 ? 0 : errno;
}

int Tree::symlink(const TreePath& path, std::string_view target) const {
  Fd folder;
  std::string name;
  if (const int error = parent_of(path, folder, name); error != 0) return error;
  return symlinkat(std::string(target).c_str(), folder.get(), name.c_str()) == 0 ? 0 : errno;
}

}  // namespace weft::store
