/* Preloaded into a server: below the folder $WEFT_TEST_SLOW, what reserves or frees room for files,
 * reads or flushes them waits until the file $WEFT_TEST_GO is there. So do symlinkat(), and close()
 * of a file that has no name any more. The file $WEFT_TEST_GO.waits says that somebody has waited.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

static void wait_for_go(void) {
  const char* go = getenv("WEFT_TEST_GO");
  char waits[4096];
  snprintf(waits, sizeof waits, "%s.waits", go == NULL ? "" : go);
  if (go != NULL && syscall(SYS_access, go, F_OK) != 0) {
    syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, waits, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  }
  while (go != NULL && syscall(SYS_access, go, F_OK) != 0) usleep(1000);
}

/* The program's other files are quick. */
static int is_slow(int fd) {
  const char* slow = getenv("WEFT_TEST_SLOW");
  char link[64], name[4096] = "";
  struct stat s;
  if (slow == NULL || fstat(fd, &s) != 0 || !(S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return readlink(link, name, sizeof name - 1) > 0 && strncmp(name, slow, strlen(slow)) == 0;
}

SHOWN int fallocate(int fd, int mode, off_t from, off_t length) {
  if (is_slow(fd)) wait_for_go();
  return (int)syscall(SYS_fallocate, fd, mode, from, length);
}

SHOWN int ftruncate(int fd, off_t length) {
  if (is_slow(fd)) wait_for_go();
  return (int)syscall(SYS_ftruncate, fd, length);
}

SHOWN int truncate(const char* name, off_t length) {
  wait_for_go();
  return (int)syscall(SYS_truncate, name, length);
}

SHOWN int unlinkat(int folder, const char* name, int flags) {
  if ((flags & AT_REMOVEDIR) == 0 && is_slow(folder)) wait_for_go();
  return (int)syscall(SYS_unlinkat, folder, name, flags);
}

SHOWN int symlinkat(const char* target, int folder, const char* name) {
  if (is_slow(folder)) wait_for_go();
  return (int)syscall(SYS_symlinkat, target, folder, name);
}

SHOWN int renameat(int from, const char* old, int to, const char* name) {
  if (is_slow(from)) wait_for_go();
  return (int)syscall(SYS_renameat2, from, old, to, name, 0);
}

SHOWN int renameat2(int from, const char* old, int to, const char* name, unsigned flags) {
  if (is_slow(from)) wait_for_go();
  return (int)syscall(SYS_renameat2, from, old, to, name, flags);
}

SHOWN ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  if (is_slow(fd)) wait_for_go();
  return syscall(SYS_pread64, fd, to, bytes, offset);
}

SHOWN int fsync(int fd) {
  if (is_slow(fd)) wait_for_go();
  return (int)syscall(SYS_fsync, fd);
}

SHOWN int close(int fd) {
  struct stat s;
  if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink == 0 && is_slow(fd)) wait_for_go();
  return (int)syscall(SYS_close, fd);
}
