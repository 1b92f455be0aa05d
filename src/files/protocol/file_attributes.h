// Attributes of files on the disk, as the protocol has them.
//
// Any thread. All calls may wait for the disk.
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "files/protocol/data_messages.h"

namespace weft::files {

// statx() of `name` in the folder `at`, or of `at` itself if it is "". Follows no link.  An errno
[[nodiscard]] int look_at(int at, const char* name, struct statx& out);
[[nodiscard]] Attributes attributes_from(const struct statx& s);
// The room that a file takes, without its holes.
[[nodiscard]] inline std::uint64_t bytes_on_disk(const struct stat& s) {
  return static_cast<std::uint64_t>(s.st_blocks) * 512;
}
// Whether an open file has octets behind its `size`, which its file system tells all the same: in
// /proc, and in some of FUSE, it is 0. A file that has grown is none of these.
[[nodiscard]] bool holds_more(int fd, std::uint64_t size);
// Takes an open file, or one that a path descriptor names. On failure `error` is an errno.
[[nodiscard]] Attributes attributes_of(int fd, int* error);
// ... with its version.
[[nodiscard]] FileState state_of(int fd, int* error);
// The file system of an open file, or of one that a path descriptor names. Unknown if that fails.
[[nodiscard]] FileSystem file_system_of(int fd);
// Whether a file had been changed so recently that another change may leave its times as they are.
// `changed_ns`: its time of the last change of the inode. `before_ns`: CLOCK_REALTIME before that
// was looked at. A later time is wrong: who was held up in between would find the file old enough.
[[nodiscard]] bool is_fresh(int fd, std::int64_t changed_ns, std::int64_t before_ns);
// Whether a read lease of an open file tells that nobody writes it. Where another machine or
// program has the files (FUSE, 9P, SMB) the kernel gives leases that know of this machine's writers
// only.
[[nodiscard]] bool leases_tell(int fd);
// Gives `out` the permissions that a client may make of `now`, a mode: the sticky bit is for
// folders, and a set-id bit that is there may stay.  EPERM: another set-id bit, by which programs
// would run as the server's user, or one of the group that gets its effect by this. `any`: it may
// make all of them.
[[nodiscard]] int change_permissions(std::uint32_t now, std::uint32_t wanted, bool any,
                                     mode_t& out);
// Gives them to an open file, or to one that a path descriptor names. Returns 0 or an errno.
[[nodiscard]] int set_permissions(int fd, std::uint32_t wanted, bool any);
// With kSetMode, and never in a message: the client may set every bit of a mode.
inline constexpr std::uint32_t kAnyMode = 1U << 31U;
// Changes of an open file what `what` (kSetMode...) names. Returns 0 or an errno.
[[nodiscard]] int set_attributes(int fd, std::uint32_t what, const Attributes& to);
// Before somebody without privileges writes to the file by way of this process: what a kernel does
// for a writer who is not root. set_permissions() does not bring them back. Returns 0 or an errno,
// with which nothing may be written.
[[nodiscard]] int drop_set_ids(int fd);

}  // namespace weft::files
