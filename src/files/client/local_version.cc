#include "files/client/local_version.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "files/client/blocks.h"
#include "files/protocol/file_attributes.h"
#include "os/clock.h"

namespace weft::files {
namespace {

// A file that takes up little room may be compressed instead.
bool has_hole(int fd, off_t size) {
  const off_t hole = lseek(fd, 0, SEEK_HOLE);
  return hole >= 0 && hole < size;
}

}  // namespace

int version_of(int fd, Version& out) {
  for (int tries = 0, changes = 0;; ++tries) {
    const Version before = out;
    const std::int64_t looked_at = os::clock_ns(CLOCK_REALTIME);
    struct stat s {};
    if (fstat(fd, &s) != 0) return errno;
    const std::int64_t changed = os::ns_of(s.st_ctim);
    out.size = static_cast<std::uint64_t>(s.st_size);
    out.device = s.st_dev;
    out.inode = s.st_ino;
    out.mtime_ns = os::ns_of(s.st_mtim);
    out.ctime_ns = changed;
    out.mode = s.st_mode & 0777U;
    out.sparse = bytes_on_disk(s) + kHoleMin < out.size && has_hole(fd, s.st_size);
    out.fresh = is_fresh(fd, changed, looked_at);
    if (out != before) ++changes;
    if (!out.fresh || tries == kSettleTries || changes == kSettleChanges) return 0;
    std::this_thread::sleep_for(kSettlePause);
  }
}

Outcome<void> check_version(int fd, const Version& before, const std::string& name) {
  Version now;
  if (const int error = version_of(fd, now); error != 0) return failed(error, name);
  now.sparse = before.sparse;  // a file system may find or lose holes by itself
  if (now == before && !before.fresh) return {};
  return failed(ESTALE, name, "the file changed while it was sent; run this again");
}

}  // namespace weft::files
