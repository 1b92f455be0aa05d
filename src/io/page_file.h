// The files of counters pages: how they are named, made, found, and removed when their process has
// gone without doing so.
//
// A file weft.<uid>.<namespace>.<pid> in $XDG_RUNTIME_DIR or /dev/shm, mode 0600. Containers may
// share that folder and give the same numbers to their processes, so the name holds the inode of
// the PID namespace. A process keeps its file locked (flock) for as long as it lives, and nothing
// else tells the living from the dead: a PID of another namespace cannot be asked for.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "os/fd.h"

namespace weft::io {

struct PageFile {
  os::Fd fd;  // holds the lock: keep it open. A child of fork() has no copy
  std::string path;
};

// Makes the file of this process, and removes files of this user whose processes have ended. The
// storage is reserved: writing to a mapping of it cannot fail for want of room.
//   kBusy     this process has one already
//   kNoSpace  no folder has room for it
//   kSystem   there is no folder where it can be made
[[nodiscard]] Result<PageFile> make_page_file(std::size_t bytes);

// Opens, for reading, the file of the process that is `pid` here. If no process here has that
// number: of the one process in another PID namespace that calls itself so.
//   kNotFound         there is no such file, or its process has ended
//   kInvalidArgument  several processes of other namespaces have that number
[[nodiscard]] Result<os::Fd> open_page_file(int pid);

}  // namespace weft::io
