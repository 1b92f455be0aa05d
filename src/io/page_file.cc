#include "io/page_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "os/clock.h"

namespace weft::io {

namespace {

// A process as its file names it.
struct PageOwner {
  std::uint64_t pid_namespace = 0;  // its inode; 0: it cannot be found out
  int pid = 0;                      // as the process calls itself
};

// XDG_RUNTIME_DIR is the user's own. /dev/shm is everybody's: a file there is trusted only if it
// belongs to this user.
std::array<const char*, 2> page_folders() { return {secure_getenv("XDG_RUNTIME_DIR"), "/dev/shm"}; }

std::string page_prefix() { return "weft." + std::to_string(getuid()) + "."; }

std::string page_name(const PageOwner& owner) {
  assert(owner.pid > 0);
  return page_prefix() + std::to_string(owner.pid_namespace) + "." + std::to_string(owner.pid);
}

std::optional<PageOwner> owner_named_by(std::string_view name) {
  const std::string prefix = page_prefix();
  if (!name.starts_with(prefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  PageOwner owner;
  const auto number = std::from_chars(name.data() + prefix.size(), end, owner.pid_namespace);
  if (number.ec != std::errc{} || number.ptr == end || *number.ptr != '.') return std::nullopt;
  const auto pid = std::from_chars(number.ptr + 1, end, owner.pid);
  if (pid.ec != std::errc{} || pid.ptr != end || owner.pid <= 0) return std::nullopt;
  return owner;
}

// The inode of the namespace, which no other has while this one exists. 0: there is no /proc, or
// the process may not be looked into.
std::uint64_t pid_namespace_of(const std::string& process) {
  struct stat st {};
  return stat(("/proc/" + process + "/ns/pid").c_str(), &st) == 0 ? st.st_ino : 0;
}

PageOwner this_process() { return {pid_namespace_of("self"), getpid()}; }

// How the process that is `pid` here calls itself. Nothing: there is no such process here.
std::optional<PageOwner> process_here(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  if (!status) return std::nullopt;
  PageOwner owner{pid_namespace_of(std::to_string(pid)), pid};
  // "NSpid: 4711 7": one number for each namespace, the innermost last.
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    const char* const end = line.data() + line.size();
    std::from_chars(line.data() + line.find_last_of(" \t") + 1, end, owner.pid);
  }
  return owner;
}

// The process that made the file holds it by LOCK_EX for as long as it lives. A process that asks
// for a page takes LOCK_SH for a moment, so that several can ask at the same time. One that removes
// the file of another takes LOCK_EX: an asker may be in its way, then the file stays for the next.
bool can_lock(int fd, int kind) { return flock(fd, kind | LOCK_NB) == 0; }

// Whether the process that made the file has ended; if so, the file is locked as `kind` until `fd`
// is closed. A file without contents is being made, and its maker must find it unlocked. Its maker
// may also have been killed there: after a minute nobody is making it any more.
bool is_abandoned(int fd, int kind) {
  constexpr time_t kMakingLimitS = 60;
  struct stat st {};
  if (fstat(fd, &st) != 0) return false;
  if (st.st_size == 0 && os::wall_seconds() - st.st_mtim.tv_sec < kMakingLimitS) return false;
  return can_lock(fd, kind);
}

// A page of this user, for reading; else nothing. O_NONBLOCK: it may turn out to be a pipe.
os::Fd open_page(const std::string& path) {
  os::Fd fd =
      os::Fd::closed_in_child(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0 || st.st_uid != getuid() || !S_ISREG(st.st_mode)) return {};
  return fd;
}

struct PageName {
  std::string path;
  PageOwner owner;
};

// Not std::filesystem::directory_iterator, which ends the program where there is no memory for it.
struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

// The files of this user in `folder` for which `wanted` holds.
template <class Wanted>
std::vector<PageName> pages_in(const char* folder, Wanted wanted) {
  std::vector<PageName> out;
  const Folder at(opendir(folder));
  while (const dirent* entry = at != nullptr ? readdir(at.get()) : nullptr) {
    const auto owner = owner_named_by(entry->d_name);
    if (owner && wanted(*owner)) {
      out.push_back({(std::filesystem::path(folder) / entry->d_name).string(), *owner});
    }
  }
  return out;
}

// Removes what killed processes have left in `folder`; `mine` is the path of this process, which
// another one may have used before. That one goes although an asker looks at it. Opening the file
// of a living process asks it for its counters, so that is not done where its number tells that it
// lives.
void sweep(const char* folder, const PageOwner& self, const std::string& mine) {
  const auto is_neighbor = [&](const PageOwner& owner) {
    return owner.pid_namespace == self.pid_namespace && owner.pid_namespace != 0;
  };
  const auto may_be_dead = [&](const PageOwner& owner) {
    return !is_neighbor(owner) || owner.pid == self.pid ||
           (kill(owner.pid, 0) != 0 && errno == ESRCH);
  };
  for (const auto& [path, owner] : pages_in(folder, may_be_dead)) {
    const os::Fd fd = open_page(path);
    if (!fd) continue;
    const int at = fd.get();
    // A dead neighbor is not making its file, so that may be without contents.
    const bool left = path == mine         ? can_lock(at, LOCK_SH)
                      : is_neighbor(owner) ? can_lock(at, LOCK_EX)
                                           : is_abandoned(at, LOCK_EX);
    if (!left) continue;
    // Another process may have removed the file before it was locked here. Then the name may be of
    // a new file by now.
    struct stat st {};
    if (fstat(at, &st) == 0 && st.st_nlink != 0) static_cast<void>(unlink(path.c_str()));
  }
}

// Makes the file of this process. Another one may just hold what was left under this name, to
// remove it.
os::Fd create_page(const char* folder, const PageOwner& self, const std::string& path) {
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    sweep(folder, self, path);
    os::Fd fd = os::Fd::closed_in_child(
        open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd || errno != EEXIST || attempt == kAttempts) return fd;
    os::nap(1'000'000);
  }
}

Error make_error(int error) {
  if (error == EEXIST) return Error::kBusy;
  const bool full = error == ENOSPC || error == EDQUOT || error == ENOMEM;
  return full ? Error::kNoSpace : Error::kSystem;
}

// A signal interrupts it at times, and then nothing is reserved.
int reserve(int fd, std::size_t bytes) {
  assert(bytes != 0);  // an empty file is one that is being made
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

// Storage is reserved. In a full folder a file can be lengthened all the same, and the first write
// to its mapping would end the program by SIGBUS.
Result<PageFile> make_in(const char* folder, const PageOwner& self, std::size_t bytes) {
  PageFile out;
  out.path = (std::filesystem::path(folder) / page_name(self)).string();
  out.fd = create_page(folder, self, out.path);
  if (!out.fd) return fail(make_error(errno));
  int error = can_lock(out.fd.get(), LOCK_EX) ? 0 : errno;
  if (error == 0) error = reserve(out.fd.get(), bytes);
  if (error == 0) return out;
  static_cast<void>(unlink(out.path.c_str()));
  return fail(make_error(error));
}

}  // namespace

Result<PageFile> make_page_file(std::size_t bytes) {
  const PageOwner self = this_process();
  Error error = Error::kSystem;
  for (const char* folder : page_folders()) {
    if (folder == nullptr || *folder != '/') continue;
    auto made = make_in(folder, self, bytes);
    if (made || made.error() == Error::kBusy) return made;
    if (made.error() == Error::kNoSpace) error = Error::kNoSpace;
  }
  return fail(error);
}

Result<os::Fd> open_page_file(int pid) {
  const auto here = process_here(pid);
  const PageOwner wanted = here.value_or(PageOwner{0, pid});
  os::Fd found;
  for (const char* folder : page_folders()) {
    if (folder == nullptr || *folder != '/') continue;
    const auto fits = [&](const PageOwner& owner) {
      return owner.pid == wanted.pid &&
             (wanted.pid_namespace == 0 || owner.pid_namespace == wanted.pid_namespace);
    };
    for (const PageName& page : pages_in(folder, fits)) {
      os::Fd fd = open_page(page.path);  // this is what the other process notices
      if (!fd || is_abandoned(fd.get(), LOCK_SH)) continue;
      if (found) return fail(Error::kInvalidArgument);
      found = std::move(fd);
    }
  }
  if (!found) return fail(Error::kNotFound);
  return found;
}

}  // namespace weft::io
