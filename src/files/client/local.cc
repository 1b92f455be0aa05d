#include "files/client/local.h"
#include "files/protocol/path_name.h"
#include "os/clock.h"
#include "os/fd.h"
#include "os/report_of_close.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace weft::files {
namespace {

// FNV-1a: enough to tell the parts of one folder apart.
std::uint64_t hash(std::string_view text, std::uint64_t state = 0xcbf29ce484222325U) {
  for (const char c : text) state = (state ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return state;
}

// Unit that is written, or left out as a hole: less than a file system's block saves nothing.
constexpr std::size_t kCellBytes = 4096;

bool is_zero(const std::uint8_t* data, std::size_t bytes) {
  return bytes == 0 || (data[0] == 0 && std::memcmp(data, data + 1, bytes - 1) == 0);
}

}  // namespace

int open_folder_below(int root, const std::string& path) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  return static_cast<int>(
      syscall(SYS_openat2, root, path.empty() ? "." : path.c_str(), &how, sizeof how));
}

bool is_safe_but_long(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool is_safe_name(std::string_view name) {
  return is_safe_but_long(name) && name.size() <= kNameBytes;
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

Outcome<Destination> Destination::open(const std::string& folder, bool create, mode_t mode) {
  Destination out;
  out.mode_ = mode;
  out.made_ = create && mkdir(folder.c_str(), mode) == 0;
  if (create && !out.made_ && errno != EEXIST) return failed(errno, "cannot make " + folder);
  out.name_ = folder;
  out.root_ = os::Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out.root_) return failed(errno, folder);
  return out;
}

Outcome<Destination> Destination::open_to_look(const std::string& folder) {
  Destination out;
  out.only_looks_ = true;
  out.name_ = folder;
  out.root_ = os::Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out.root_ && errno != ENOENT) return failed(errno, folder);
  out.made_ = !out.root_;
  return out;
}

Outcome<Destination> Destination::another() const {
  Destination out;
  out.name_ = name_;
  out.mode_ = mode_;
  out.root_ = os::Fd(openat(root_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out.root_) return failed(errno, name_);
  return out;
}

Outcome<void> Destination::flush_name() const {
  const os::Fd above(openat(root_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!above) return made_ ? failed(errno, name_) : Outcome<void>();
  const int error = flush(above.get());
  return error == 0 ? Outcome<void>() : failed(error, name_);
}

std::string Destination::shown(const std::string& path) const {
  return name_ == "." ? path : join(name_, path);
}

Outcome<std::shared_ptr<os::Fd>> Destination::folder(const std::string& path, bool* made) {
  for (const Kept& one : kept_) {
    if (one.path == path) return one.folder;
  }
  bool makes = false;
  auto opened = open_or_make(path, makes);
  if (!opened) return tl::unexpected(opened.error());
  if (made != nullptr) *made = makes;
  Kept one{path, std::make_shared<os::Fd>(std::move(*opened))};
  if (kept_.size() < kKeptOpen) {
    kept_.push_back(one);
  } else {
    kept_[oldest_] = one;
    oldest_ = (oldest_ + 1) % kKeptOpen;
  }
  return one.folder;
}

Outcome<os::Fd> Destination::open_or_make(const std::string& path, bool& made) const {
  if (only_looks_ && !root_) {
    made = true;
    return os::Fd();
  }
  os::Fd found(open_folder_below(root_.get(), path));
  if (found) return found;
  if (errno != ENOENT) return failed(errno, name_ + "/" + path);
  made = only_looks_;
  if (only_looks_) return os::Fd();
  // The parents were made before, as the tree is walked from its root.
  const std::size_t slash = path.rfind('/');
  const os::Fd parent(
      open_folder_below(root_.get(), slash == std::string::npos ? "" : path.substr(0, slash)));
  const std::string last = slash == std::string::npos ? path : path.substr(slash + 1);
  made = parent && mkdirat(parent.get(), last.c_str(), mode_) == 0;
  // Where another copy was faster, what it made is opened, or is no folder.
  if (!made && errno != EEXIST) return failed(errno, name_ + "/" + path);
  found = os::Fd(open_folder_below(root_.get(), path));
  if (!found) return failed(errno, name_ + "/" + path);
  return found;
}

namespace {

// The part of that name, locked. EWOULDBLOCK: somebody else writes it.
int open_locked(int folder, const std::string& name, os::Fd& out) {
  for (int tries = 0; tries < 8; ++tries) {
    os::Fd file(
        openat(folder, name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!file) return errno;
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return errno;
    if (is_named(folder, name, file.get())) {
      out = std::move(file);
      return 0;
    }
  }
  return EWOULDBLOCK;
}

}  // namespace

Outcome<Part> Part::open(Destination& destination, const std::string& path,
                         const Attributes& attributes, bool resume, std::uint64_t& there) {
  there = 0;
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const auto folder = destination.folder(slash == std::string::npos ? "" : path.substr(0, slash));
  if (!folder) return tl::unexpected(folder.error());
  char part_name[64];
  const std::uint64_t identity =
      hash(name, hash(std::to_string(attributes.size) + "/" + std::to_string(attributes.mtime_ns)));
  std::snprintf(part_name, sizeof part_name, "%s%016llx", std::string(kPartPrefix).c_str(),
                static_cast<unsigned long long>(identity));
  Part part;
  part.folder_ = *folder;
  part.name_ = name;
  part.shown_ = destination.shown(path);
  part.part_name_ = part_name;
  int error = open_locked(part.folder_->get(), part.part_name_, part.file_);
  // Somebody else copies the same file to here, or there are no locks on this file system.
  const bool alone = error == EWOULDBLOCK || error == ENOLCK || error == EOPNOTSUPP;
  if (alone) error = part.open_unique();
  struct stat found {};
  if (error == 0 && fstat(part.file_.get(), &found) != 0) error = errno;
  if (error != 0) return failed(error, part.shown_);
  const auto size = static_cast<std::uint64_t>(found.st_size);
  there = resume && size <= attributes.size ? size : 0;
  part.end_ = size;
  if (auto ok = part.keep(there); !ok) return tl::unexpected(ok.error());
  return part;
}

Outcome<std::string> unique_part_name() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    return failed(EIO, "no random numbers");
  char end[32];
  std::snprintf(end, sizeof end, "%016llx", static_cast<unsigned long long>(number));
  return std::string(kPartPrefix) + end;
}

int put_link(int folder, const std::string& name, const std::string& target, bool replace) {
  if (!replace) return symlinkat(target.c_str(), folder, name.c_str()) == 0 ? 0 : errno;
  const auto between = unique_part_name();
  if (!between) return between.error().error;
  if (symlinkat(target.c_str(), folder, between->c_str()) != 0) return errno;
  if (renameat(folder, between->c_str(), folder, name.c_str()) == 0) return 0;
  const int error = errno;
  unlinkat(folder, between->c_str(), 0);
  return error;
}

int Part::open_unique() {
  const auto unique = unique_part_name();
  if (!unique) return unique.error().error;
  part_name_ = *unique;
  file_ = os::Fd(openat(folder_->get(), part_name_.c_str(),
                        O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  return file_ ? 0 : errno;
}

Outcome<void> Part::keep(std::uint64_t bytes) {
  if (bytes == end_) return {};
  if (ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) return failed(errno, shown_);
  end_ = bytes;
  return {};
}

Outcome<void> Part::write(const std::uint8_t* data, std::size_t bytes, std::uint64_t at) {
  std::size_t from = 0;  // where octets that have to be written begin
  for (std::size_t here = 0; here < bytes; here += kCellBytes) {
    const std::size_t cell = std::min(kCellBytes, bytes - here);
    if (!is_zero(data + here, cell)) continue;
    if (auto ok = write_fully_at(data + from, here - from, at + from); !ok) return ok;
    from = here + cell;
  }
  return from < bytes ? write_fully_at(data + from, bytes - from, at + from) : Outcome<void>();
}

void Part::pass_cache(bool on) {
  if (on == passes_cache_) return;
  const int flags = fcntl(file_.get(), F_GETFL);
  const int wanted = on ? flags | O_DIRECT : flags & ~O_DIRECT;
  passes_cache_ = fcntl(file_.get(), F_SETFL, wanted) == 0 && on;
}

Outcome<void> Part::write_fully_at(const std::uint8_t* data, std::size_t bytes, std::uint64_t at) {
  // The end of a file is no whole block, as a rule.
  if ((bytes | at) % kCellBytes != 0) pass_cache(false);
  while (bytes != 0) {
    const ssize_t took = pwrite(file_.get(), data, bytes, static_cast<off_t>(at));
    if (took < 0 && errno == EINTR) continue;
    if (took < 0 && errno == EINVAL && passes_cache_) {
      pass_cache(false);  // its blocks are larger
      continue;
    }
    if (took < 0) return failed(errno, shown_);
    data += took;
    bytes -= static_cast<std::size_t>(took);
    at += static_cast<std::uint64_t>(took);
    end_ = at;
  }
  return {};
}

// Zeros at the end were left out. The last byte is written rather than the length set: a length is
// on the disk before the contents, and a power cut would leave a file of the right size and time
// that is a hole.
Outcome<void> Part::complete(std::uint64_t size) {
  const std::uint8_t zero = 0;
  return end_ < size ? write_fully_at(&zero, 1, size - 1) : Outcome<void>();
}

Outcome<void> Part::finish(const Attributes& attributes, bool durable) {
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(attributes.mtime_ns)};
  if (auto ok = complete(attributes.size); !ok) return ok;
  if (details_) {
    if (const int error = set_details(file_.get(), *details_); error != 0) {
      return failed(error, shown_ + ": owner, mode or extended attributes");
    }
  } else if (fchmod(file_.get(), attributes.mode & 0777U) != 0) {
    return failed(errno, shown_);
  }
  if (futimens(file_.get(), times) != 0) return failed(errno, shown_);
  int error = durable && fsync(file_.get()) != 0 ? errno : 0;
  if (error == 0) error = os::report_of_close(file_.get());
  if (error != 0) {
    // Its octets can be read, and compared, although they are not on the disk, and flushing it
    // again would not say so: no later copy may go on with it.
    discard();
    return failed(error, shown_);
  }
  if (!is_named(folder_->get(), part_name_, file_.get())) {
    return failed(ESTALE, shown_, "somebody removed or replaced " + part_name_ + " meanwhile");
  }
  if (renameat(folder_->get(), part_name_.c_str(), folder_->get(), name_.c_str()) != 0) {
    return failed(errno, shown_);
  }
  return {};
}

void Part::discard() {
  if (is_named(folder_->get(), part_name_, file_.get())) {
    unlinkat(folder_->get(), part_name_.c_str(), 0);
  }
}

}  // namespace weft::files
