// Records the calls of its process that change or flush files, folders and links, in their order. A
// library to preload. WEFT_TEST_RECORD is the file that lines are added to:
//
//   write NUMBER            its octets, its length, its mode or its times are others
//   name FOLDER NAME NUMBER KIND  a name for it: of a new file, folder or link, or one more
//   rename FOLDER NAME FOLDER NAME
//   remove FOLDER NAME
//   flush NUMBER, flushed NUMBER  fsync() began, and has succeeded: what was recorded before the
//                                 beginning is on the disk
//
// NUMBER and FOLDER tell files apart, KIND is "file" or "other".
//
// A change is recorded when its call has returned: a flush that began before then counts as one
// that did not see it.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC visibility push(default)

static void record(const char* format, ...) {
  const int error = errno;
  const char* path = getenv("WEFT_TEST_RECORD");
  const int fd = path == NULL ? -1 : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd >= 0) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(fd, line, (size_t)bytes) != bytes) abort();
    close(fd);
  }
  errno = error;
}

static unsigned long number_of(const struct stat* s) { return s->st_dev << 40 ^ s->st_ino; }

static unsigned long of(int fd) {
  struct stat s;
  return fstat(fd, &s) == 0 ? number_of(&s) : 0;
}

// The folder of a path, and its last name.
static unsigned long at(int folder, const char* path, const char** name) {
  char above[4096];
  snprintf(above, sizeof above, "%s", path);
  char* slash = strrchr(above, '/');
  *name = slash == NULL ? path : path + (slash - above) + 1;
  struct stat s;
  if (slash == NULL)
    return folder == AT_FDCWD ? (stat(".", &s) == 0 ? number_of(&s) : 0) : of(folder);
  slash[slash == above] = 0;
  return fstatat(folder, above, &s, 0) == 0 ? number_of(&s) : 0;
}

static void record_name(int folder, const char* path) {
  const char* name = NULL;
  const unsigned long above = at(folder, path, &name);
  struct stat s;
  if (fstatat(folder, path, &s, AT_SYMLINK_NOFOLLOW) != 0) return;
  record("name %lu %s %lu %s\n", above, name, number_of(&s), S_ISREG(s.st_mode) ? "file" : "other");
}

#define REAL(type, name, parameters) \
  type(*real) parameters;            \
  *(void**)&real = dlsym(RTLD_NEXT, #name)

#define CHANGE(type, name, parameters, arguments)   \
  type name parameters {                            \
    REAL(type, name, parameters);                   \
    const type result = real arguments;             \
    if (result >= 0) record("write %lu\n", of(fd)); \
    return result;                                  \
  }

CHANGE(ssize_t, pwrite, (int fd, const void* data, size_t bytes, off_t where),
       (fd, data, bytes, where))
CHANGE(ssize_t, pwrite64, (int fd, const void* data, size_t bytes, off64_t where),
       (fd, data, bytes, where))
CHANGE(int, ftruncate, (int fd, off_t bytes), (fd, bytes))
CHANGE(int, ftruncate64, (int fd, off64_t bytes), (fd, bytes))
CHANGE(int, fchmod, (int fd, mode_t mode), (fd, mode))
CHANGE(int, futimens, (int fd, const struct timespec times[2]), (fd, times))

int chmod(const char* path, mode_t mode) {
  REAL(int, chmod, (const char*, mode_t));
  const int result = real(path, mode);
  struct stat s;
  if (result == 0 && stat(path, &s) == 0) record("write %lu\n", number_of(&s));
  return result;
}

#define FLUSH(name)                                  \
  int name(int fd) {                                 \
    REAL(int, name, (int));                          \
    const unsigned long inode = of(fd);              \
    record("flush %lu\n", inode);                    \
    const int result = real(fd);                     \
    if (result == 0) record("flushed %lu\n", inode); \
    return result;                                   \
  }

FLUSH(fsync)
FLUSH(fdatasync)

static int opened(int fd, int folder, const char* path, int flags) {
  if (fd >= 0 && (flags & O_CREAT) != 0) record_name(folder, path);
  return fd;
}

#define OPEN(name, parameters, arguments, folder)                                          \
  int name parameters {                                                                    \
    va_list more;                                                                          \
    va_start(more, flags);                                                                 \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0; \
    va_end(more);                                                                          \
    int(*real) parameters;                                                                 \
    *(void**)&real = dlsym(RTLD_NEXT, #name);                                              \
    return opened(real arguments, folder, path, flags);                                    \
  }

OPEN(openat, (int folder, const char* path, int flags, ...), (folder, path, flags, mode), folder)
OPEN(openat64, (int folder, const char* path, int flags, ...), (folder, path, flags, mode), folder)

int mkdir(const char* path, mode_t mode) {
  REAL(int, mkdir, (const char*, mode_t));
  const int result = real(path, mode);
  if (result == 0) record_name(AT_FDCWD, path);
  return result;
}

int mkdirat(int folder, const char* path, mode_t mode) {
  REAL(int, mkdirat, (int, const char*, mode_t));
  const int result = real(folder, path, mode);
  if (result == 0) record_name(folder, path);
  return result;
}

int symlinkat(const char* target, int folder, const char* path) {
  REAL(int, symlinkat, (const char*, int, const char*));
  const int result = real(target, folder, path);
  if (result == 0) record_name(folder, path);
  return result;
}

int linkat(int from, const char* old, int folder, const char* path, int flags) {
  REAL(int, linkat, (int, const char*, int, const char*, int));
  const int result = real(from, old, folder, path, flags);
  if (result == 0) record_name(folder, path);
  return result;
}

int unlinkat(int folder, const char* path, int flags) {
  REAL(int, unlinkat, (int, const char*, int));
  const char* name = NULL;
  const unsigned long above = at(folder, path, &name);
  const int result = real(folder, path, flags);
  if (result == 0) record("remove %lu %s\n", above, name);
  return result;
}

static int renamed(int result, int from, const char* old, int to, const char* path) {
  const char* old_name = NULL;
  const char* name = NULL;
  const unsigned long above = at(from, old, &old_name);
  const unsigned long to_above = at(to, path, &name);
  if (result == 0) record("rename %lu %s %lu %s\n", above, old_name, to_above, name);
  return result;
}

int renameat(int from, const char* old, int to, const char* path) {
  REAL(int, renameat, (int, const char*, int, const char*));
  return renamed(real(from, old, to, path), from, old, to, path);
}

int renameat2(int from, const char* old, int to, const char* path, unsigned flags) {
  REAL(int, renameat2, (int, const char*, int, const char*, unsigned));
  return renamed(real(from, old, to, path, flags), from, old, to, path);
}
