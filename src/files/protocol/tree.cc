#include "files/protocol/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "files/protocol/file_attributes.h"
#include "files/protocol/open_beneath.h"

namespace weft::files {
namespace {

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

int Tree::usage(const TreePath& path, Usage& out, FileSystem& which) const {
  const Place place = locate(path);
  if (place.fd < 0 && !place.root) return ENOENT;
  os::Fd found;
  if (!place.root) {
    found = os::Fd(open_bounded(place.fd, place.rest, place.links, O_PATH | O_NOFOLLOW));
    if (!found) return errno;
    which = file_system_of(found.get());
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

int Tree::open_file(const TreePath& path, bool direct, bool waits, os::Fd& file,
                    FileState& out) const {
  const Place place = locate(path);
  if (place.root) return EISDIR;
  if (place.fd < 0) return ENOENT;
  // By way of a path descriptor: opening a device or a pipe would already do something.
  const os::Fd found(open_bounded(place.fd, place.rest, place.links, O_PATH));
  if (!found) return errno;
  int error = 0;
  out = state_of(found.get(), &error);
  if (error != 0) return error;
  if (S_ISDIR(out.attributes.mode)) return EISDIR;
  if (!S_ISREG(out.attributes.mode)) return EINVAL;
  const std::string name = proc_name(found.get());
  const int how = O_RDONLY | O_CLOEXEC | (waits ? 0 : O_NONBLOCK);
  file = os::Fd(::open(name.c_str(), how | (direct ? O_DIRECT : 0)));
  if (!file && direct && errno == EINVAL) file = os::Fd(::open(name.c_str(), how));
  if (!file) return errno;
  // Before reads wait: there are files that have octets only now and then.
  if (out.attributes.size == 0 && holds_more(file.get(), 0)) return EOVERFLOW;
  let_wait(file.get());
  return 0;
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

// Whether there was room for it.
bool add(const Entry& entry, Tree::Page& page) {
  const std::size_t took = encode(entry, page.room.subspan(page.bytes));
  page.bytes += static_cast<std::uint32_t>(took);
  return took != 0;
}

}  // namespace

int Tree::list_exports(std::uint64_t cursor, Page& page) const {
  for (std::size_t i = cursor; i < exports_.size(); ++i) {
    int error = 0;
    const Export& one = exports_[i];
    const os::Fd file(one.file.empty() ? -1 : open_beneath(one.fd.get(), one.file, O_PATH));
    if (!one.file.empty() && !file) error = errno;
    Entry entry{one.name, {}};
    if (error == 0) entry.attributes = attributes_of(file ? file.get() : one.fd.get(), &error);
    if (error == ENOENT) continue;  // gone meanwhile
    if (error != 0 && !page.tells_failures) return error;
    if (error != 0) entry.attributes = Attributes::of_failure(error);
    if (add(entry, page)) continue;
    page.next = i;
    return page.bytes == 0 ? EINVAL : 0;
  }
  return 0;
}

int Tree::list(const TreePath& path, std::uint64_t cursor, Page& page,
               std::unique_ptr<FolderStream>& listing) const {
  page.bytes = 0;
  page.next = 0;
  const Place place = locate(path);
  if (place.root) return list_exports(cursor, page);
  if (place.fd < 0) return ENOENT;
  if (listing == nullptr) {
    if (cursor != 0) return ESTALE;
    os::Fd fd(open_bounded(place.fd, place.rest, place.links, O_RDONLY | O_DIRECTORY));
    if (!fd) return errno;
    listing = std::make_unique<FolderStream>(std::move(fd));
    if (!listing->good()) return ENOMEM;
  }
  const int error = fill(*listing, page);
  if (error != 0 || page.next == 0) listing.reset();
  return error;
}

// As many entries as there is room for.
int Tree::fill(FolderStream& listing, Page& page) const {
  const int fd = dirfd(listing.stream());
  for (;;) {
    const long here = telldir(listing.stream());
    errno = 0;
    const dirent* found = readdir(listing.stream());
    if (found == nullptr) return errno;
    const std::string_view name = found->d_name;
    if (name == "." || name == "..") continue;
    if (name.starts_with(kDraftPrefix)) {
      os::Fd removed = writable_ ? remove_if_old(fd, found->d_name) : os::Fd();
      if (removed) page.removed.push_back(std::move(removed));
      continue;
    }
    struct statx s {};
    const int error = look_at(fd, found->d_name, s);
    if (error == ENOENT) continue;  // gone meanwhile
    if (error != 0 && !page.tells_failures) return error;
    const Entry entry{name, error == 0 ? attributes_from(s) : Attributes::of_failure(error)};
    if (add(entry, page)) continue;
    seekdir(listing.stream(), here);
    page.next = static_cast<std::uint64_t>(here);
    return page.bytes == 0 ? EINVAL : 0;
  }
}

}  // namespace weft::files
