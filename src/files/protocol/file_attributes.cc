#include "files/protocol/file_attributes.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/bytes.h"
#include "files/protocol/open_beneath.h"
#include "os/clock.h"
#include "os/lock.h"

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

// A clock tick of the kernel, twice.
constexpr std::int64_t kTickNs = 20000000;
constexpr std::int64_t kCoarseNs = 2 * os::kNsPerSecond + kTickNs;

// How coarse the times of changes are: a clock tick, or what a server or program of another machine
// makes of it. File systems of the second kind: NFS, FUSE, SMB. Some count in seconds, as FAT and
// ext4 with small inodes do: of their times nothing is left below the second.
std::int64_t tick_ns(int fd, std::int64_t changed_ns) {
  if (changed_ns % os::kNsPerSecond == 0) return kCoarseNs;
  struct statfs where {};
  if (fstatfs(fd, &where) != 0) return kCoarseNs;
  switch (static_cast<std::uint32_t>(where.f_type)) {
    case 0x6969U:
    case 0x65735546U:
    case 0xff534d42U:
    case 0xfe534d42U: return kCoarseNs;
    default: return kTickNs;
  }
}

// Octets that no other file has: a handle of the file system, or else its number
// and its time of birth. Both with the number of the device in front.
std::vector<std::uint8_t> identity_of(int fd, const struct statx& s) {
  constexpr int kOnlyToCompare = 0x200;  // AT_HANDLE_FID, of Linux 6.5
  alignas(file_handle) std::uint8_t room[sizeof(file_handle) + MAX_HANDLE_SZ];
  auto* handle = reinterpret_cast<file_handle*>(room);
  int mount = 0;
  for (const int how : {0, kOnlyToCompare}) {
    handle->handle_bytes = MAX_HANDLE_SZ;
    if (name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH | how) != 0) continue;
    std::vector<std::uint8_t> out(16 + handle->handle_bytes);
    store_be32(out.data(), s.stx_dev_major);
    store_be32(out.data() + 4, s.stx_dev_minor);
    store_be32(out.data() + 8, static_cast<std::uint32_t>(handle->handle_type));
    store_be32(out.data() + 12, 1);
    std::copy_n(handle->f_handle, handle->handle_bytes, out.begin() + 16);
    return out;
  }
  std::vector<std::uint8_t> out(24);
  store_be32(out.data(), s.stx_dev_major);
  store_be32(out.data() + 4, s.stx_dev_minor);
  store_be64(out.data() + 8, s.stx_ino);
  const bool has_birth = (s.stx_mask & STATX_BTIME) != 0;
  if (has_birth) store_be64(out.data() + 16, static_cast<std::uint64_t>(ns_of(s.stx_btime)));
  return out;
}

ObjectId object_of(int fd, const struct statx& s) {
  const std::vector<std::uint8_t> identity = identity_of(fd, s);
  std::uint8_t sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  ObjectId out{};
  if (EVP_Digest(identity.data(), identity.size(), sum, &length, EVP_sha256(), nullptr) != 1) {
    std::abort();  // no memory: a file without a name would be taken for another
  }
  std::copy_n(sum, out.size(), out.begin());
  return out;
}

}  // namespace

bool is_fresh(int fd, std::int64_t changed_ns, std::int64_t before_ns) {
  const std::int64_t age = std::abs(before_ns - changed_ns);
  return age < kCoarseNs && age < tick_ns(fd, changed_ns);
}

bool holds_more(int fd, std::uint64_t size) {
  alignas(4096) std::array<std::uint8_t, 4096> room;  // for O_DIRECT
  struct stat s {};
  return pread(fd, room.data(), room.size(), static_cast<off_t>(size)) > 0 && fstat(fd, &s) == 0 &&
         static_cast<std::uint64_t>(s.st_size) == size;
}

FileSystem file_system_of(int fd) {
  FileSystem out;
  struct stat s {};
  struct statfs where {};
  if (fstat(fd, &s) != 0 || fstatfs(fd, &where) != 0) return out;
  static_assert(sizeof where.f_fsid == sizeof out.id);
  out.device = s.st_dev;
  std::memcpy(&out.id, &where.f_fsid, sizeof out.id);
  return out;
}

bool leases_tell(int fd) {
  struct statfs where {};
  if (fstatfs(fd, &where) != 0) return false;
  switch (static_cast<std::uint32_t>(where.f_type)) {
    case 0x65735546U:  // FUSE
    case 0x01021997U:  // 9P
    case 0x517bU:      // SMB, of three ages
    case 0xff534d42U:
    case 0xfe534d42U: return false;
    default: return true;
  }
}

int look_at(int at, const char* name, struct statx& out) {
  constexpr int kFlags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_STATX_SYNC_AS_STAT;
  return statx(at, name, kFlags, STATX_BASIC_STATS | STATX_BTIME, &out) == 0 ? 0 : errno;
}

Attributes attributes_from(const struct statx& s) {
  Attributes out;
  out.mode = s.stx_mode;
  out.links = s.stx_nlink;
  out.uid = s.stx_uid;
  out.gid = s.stx_gid;
  out.size = s.stx_size;
  out.blocks = s.stx_blocks;
  out.mtime_ns = ns_of(s.stx_mtime);
  out.ctime_ns = ns_of(s.stx_ctime);
  out.file_id = file_id_of(s);
  out.device = std::uint64_t{s.stx_rdev_major} << 32U | s.stx_rdev_minor;
  return out;
}

Attributes attributes_of(int fd, int* error) {
  struct statx s {};
  *error = look_at(fd, "", s);
  return attributes_from(s);
}

FileState state_of(int fd, int* error) {
  const std::int64_t before = os::clock_ns(CLOCK_REALTIME);
  struct statx s {};
  *error = look_at(fd, "", s);
  FileState out;
  if (*error != 0) return out;
  out.attributes = attributes_from(s);
  out.object = object_of(fd, s);
  out.level = is_fresh(fd, out.attributes.ctime_ns, before) ? kLevelNone : kLevelTimes;
  return out;
}

int change_permissions(std::uint32_t now, std::uint32_t wanted, bool any, mode_t& out) {
  constexpr std::uint32_t kSetIds = S_ISUID | S_ISGID;
  if (any) {
    out = wanted & 07777U;
    return 0;
  }
  if ((wanted & kSetIds & ~now) != 0) return EPERM;
  // Without the group's right to execute the bit means nothing, and stays where the file is written
  // to.
  constexpr std::uint32_t kForGroup = S_ISGID | S_IXGRP;
  const bool has = S_ISDIR(now) || (now & kForGroup) == kForGroup;
  if (!has && (wanted & kForGroup) == kForGroup) return EPERM;
  out = wanted & (0777U | kSetIds | (S_ISDIR(now) ? S_ISVTX : 0U));
  return 0;
}

namespace {

// Bits that one thread takes away another one may just have found there.
os::Mutex& permissions() {
  static os::Mutex mutex;
  return mutex;
}

mode_t set_ids_of_a_program(mode_t mode) {
  const mode_t of_group = (mode & S_IXGRP) != 0 ? S_ISGID : 0U;
  return mode & (S_ISUID | of_group);
}

}  // namespace

int set_permissions(int fd, std::uint32_t wanted, bool any) {
  const os::MutexLock guard(permissions());
  struct stat s {};
  if (fstat(fd, &s) != 0) return errno;
  mode_t mode = 0;
  if (const int error = change_permissions(s.st_mode, wanted, any, mode); error != 0) return error;
  if (fchmod(fd, mode) == 0) return 0;
  // A path descriptor stands for a name only.
  if (errno == EBADF && chmod(proc_name(fd).c_str(), mode) == 0) return 0;
  return errno;
}

int drop_set_ids(int fd) {
  struct stat s {};
  if (fstat(fd, &s) != 0) return errno;
  if (set_ids_of_a_program(s.st_mode) == 0) return 0;
  const os::MutexLock guard(permissions());
  if (fstat(fd, &s) != 0) return errno;
  const mode_t mode = s.st_mode & 07777U & ~set_ids_of_a_program(s.st_mode);
  // A process that may not do this is neither owner nor root: then the kernel does it.
  return fchmod(fd, mode) == 0 || errno == EPERM ? 0 : errno;
}

int set_attributes(int fd, std::uint32_t what, const Attributes& to) {
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(to.mtime_ns)};
  if ((what & kSetSize) != 0 && ftruncate(fd, static_cast<off_t>(to.size)) != 0) return errno;
  if ((what & kSetMode) != 0) {
    if (const int error = set_permissions(fd, to.mode, (what & kAnyMode) != 0)) return error;
  }
  if ((what & kSetTime) != 0 && futimens(fd, times) != 0) return errno;
  return 0;
}

}  // namespace weft::files
