// Names that the kernel resolves beneath a folder: "..", absolute paths and symbolic links can't
// lead out of it, whatever changes meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::files {

// open(2) of `path` beneath `folder`; "" is the folder. `resolve`: more of openat2(2)'s RESOLVE_*.
// -1 with errno: EXDEV for a name that leads out.
[[nodiscard]] int open_beneath(int folder, const std::string& path, int flags,
                               std::uint64_t resolve = 0);
// As open_beneath(), and no link is followed behind the first `links` octets of the path.
[[nodiscard]] int open_bounded(int folder, const std::string& path, std::size_t links, int flags);

// Takes O_NONBLOCK off a file that was opened with it. It is for the opening; later io_uring would
// answer EAGAIN where a file system cannot read or write without waiting.
void let_wait(int fd);

// A path to what a descriptor is open for, for calls that take only names.
[[nodiscard]] std::string proc_name(int fd);

}  // namespace weft::files
