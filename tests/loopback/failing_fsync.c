/* Preloaded into a program: fsync() of a regular file or a block device is EIO, the first
 * $WEFT_TEST_FSYNC_FAILS times or always. With $WEFT_TEST_FSYNC_KILLS, that of a folder kills the
 * program; with $WEFT_TEST_FSYNC_FOLDERS it is that error. With $WEFT_TEST_CLOSE_FAILS, close() of
 * a regular file that is open for writing is ENOSPC, as of a full disk behind NFS.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int calls;

__attribute__((visibility("default"))) int fsync(int fd) {
  const char* times = getenv("WEFT_TEST_FSYNC_FAILS");
  const char* of_folders = getenv("WEFT_TEST_FSYNC_FOLDERS");
  struct stat s;
  if (fstat(fd, &s) != 0) return -1;
  if (S_ISDIR(s.st_mode) && of_folders != NULL) {
    errno = atoi(of_folders);
    return -1;
  }
  if (S_ISDIR(s.st_mode) && getenv("WEFT_TEST_FSYNC_KILLS") != NULL) kill(getpid(), SIGKILL);
  if ((S_ISREG(s.st_mode) || S_ISBLK(s.st_mode)) &&
      (times == NULL || atomic_fetch_add(&calls, 1) < atoi(times))) {
    errno = EIO;
    return -1;
  }
  return (int)syscall(SYS_fsync, fd);
}

__attribute__((visibility("default"))) int close(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  struct stat s;
  const int fails = getenv("WEFT_TEST_CLOSE_FAILS") != NULL && flags >= 0 &&
                    (flags & O_ACCMODE) != O_RDONLY && fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
  const int closed = (int)syscall(SYS_close, fd);
  if (!fails || closed != 0) return closed;
  errno = ENOSPC;
  return -1;
}
