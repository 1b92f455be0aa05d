#include "store/local.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

namespace weft::store {
namespace {

int open_folder(int root, const std::string& path) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  return static_cast<int>(
      syscall(SYS_openat2, root, path.empty() ? "." : path.c_str(), &how, sizeof how));
}

// FNV-1a: enough to tell the parts of one folder apart.
std::uint64_t hash(std::string_view text, std::uint64_t state = 0xcbf29ce484222325U) {
  for (const char c : text) state = (state ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return state;
}

timespec time_of(std::int64_t ns) {
  constexpr std::int64_t kSecond = 1000000000;
  const std::int64_t part = ((ns % kSecond) + kSecond) % kSecond;
  return {static_cast<time_t>((ns - part) / kSecond), static_cast<long>(part)};
}

}  // namespace

bool is_safe_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && name.size() <= 255;
}

int write_fully(int fd, const std::uint8_t* data, std::size_t bytes) {
  while (bytes != 0) {
    const ssize_t took = ::write(fd, data, bytes);
    if (took < 0 && errno == EINTR) continue;
    if (took < 0) return errno;
    data += took;
    bytes -= static_cast<std::size_t>(took);
  }
  return 0;
}

Outcome<Destination> Destination::open(const std::string& folder, bool create) {
  if (create && mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return failed(errno, "cannot make " + folder);
  }
  Destination out;
  out.name_ = folder;
  out.root_ = Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out.root_) return failed(errno, folder);
  return out;
}

Outcome<Fd> Destination::folder(const std::string& path) const {
  Fd found(open_folder(root_.get(), path));
  if (found) return found;
  if (errno != ENOENT) return failed(errno, name_ + "/" + path);
  // The parents were made before, as the tree is walked from its root.
  const std::size_t slash = path.rfind('/');
  const Fd parent(
      open_folder(root_.get(), slash == std::string::npos ? "" : path.substr(0, slash)));
  const std::string last = slash == std::string::npos ? path : path.substr(slash + 1);
  if (!parent || mkdirat(parent.get(), last.c_str(), 0777) != 0) {
    return failed(errno, name_ + "/" + path);
  }
  found = Fd(open_folder(root_.get(), path));
  if (!found) return failed(errno, name_ + "/" + path);
  return found;
}

Outcome<Part> Part::open(int folder, const std::string& name, const Attributes& attributes,
                         bool resume, std::uint64_t& at) {
  at = 0;
  char part_name[64];
  const std::uint64_t identity =
      hash(name, hash(std::to_string(attributes.size) + "/" + std::to_string(attributes.mtime_ns)));
  std::snprintf(part_name, sizeof part_name, ".weft-part-%016llx",
                static_cast<unsigned long long>(identity));
  Part part;
  part.folder_ = folder;
  part.name_ = name;
  part.part_name_ = part_name;
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (resume ? 0 : O_TRUNC);
  part.file_ = Fd(openat(folder, part_name, flags, 0600));
  struct stat found {};
  if (!part.file_ || fstat(part.file_.get(), &found) != 0) return failed(errno, name);
  if (!S_ISREG(found.st_mode)) return failed(EINVAL, name, std::string(part_name) + " is no file");
  // Octets are written in order, so its length says how many are right.
  if (static_cast<std::uint64_t>(found.st_size) <= attributes.size) {
    at = static_cast<std::uint64_t>(found.st_size);
  } else if (ftruncate(part.file_.get(), 0) != 0) {
    return failed(errno, name);
  }
  return part;
}

Outcome<void> Part::write(const std::uint8_t* data, std::size_t bytes, std::uint64_t at) {
  while (bytes != 0) {
    const ssize_t took = pwrite(file_.get(), data, bytes, static_cast<off_t>(at));
    if (took < 0 && errno == EINTR) continue;
    if (took < 0) return failed(errno, name_);
    data += took;
    bytes -= static_cast<std::size_t>(took);
    at += static_cast<std::uint64_t>(took);
  }
  return {};
}

Outcome<void> Part::finish(const Attributes& attributes) {
  const timespec times[2] = {{0, UTIME_OMIT}, time_of(attributes.mtime_ns)};
  if (fchmod(file_.get(), attributes.mode & 0777U) != 0 || futimens(file_.get(), times) != 0 ||
      renameat(folder_, part_name_.c_str(), folder_, name_.c_str()) != 0) {
    return failed(errno, name_);
  }
  return {};
}

void Part::discard() { unlinkat(folder_, part_name_.c_str(), 0); }

}  // namespace weft::store
