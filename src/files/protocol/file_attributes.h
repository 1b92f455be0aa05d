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
// Without the stamp of an open file.
[[nodiscard]] Attributes attributes_from(const struct statx& s);
// With the stamp of an open file (Attributes::stamp).
[[nodiscard]] Attributes attributes_of(int fd, int* error);
// Attributes::stamp of a file that is open or named by a path descriptor.
// `changed_ns`: when its inode was changed last.
[[nodiscard]] std::uint32_t stamp_of(int fd, std::int64_t changed_ns);
// Changes of an open file what `what` (kSetMode...) names. Returns 0 or an errno.
[[nodiscard]] int set_attributes(int fd, std::uint32_t what, const Attributes& to);

}  // namespace weft::files
