#include "files/protocol/file_attributes.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "os/clock.h"

namespace weft::files {
namespace {

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

int look_at(int at, const char* name, struct statx& out) {
  constexpr int kFlags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_STATX_SYNC_AS_STAT;
  return statx(at, name, kFlags, STATX_BASIC_STATS | STATX_BTIME, &out) == 0 ? 0 : errno;
}

Attributes attributes_from(const struct statx& s) {
  Attributes out;
  out.mode = s.stx_mode;
  out.size = s.stx_size;
  out.mtime_ns = ns_of(s.stx_mtime);
  out.file_id = file_id_of(s);
  return out;
}

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

}  // namespace weft::files
