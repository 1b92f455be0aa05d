// Kills its process before the call number WEFT_TEST_KILL_AT (1 is the first) of those that change
// a file, a folder or a link, or with WEFT_TEST_KILL_NETWORK of those that use the network or read
// a file. A library to preload; without the variable it does nothing.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#pragma GCC visibility push(default)

static atomic_long calls;

static void* next(const char* name, int of_network) {
  static _Thread_local int inside;
  if (!inside++ && (getenv("WEFT_TEST_KILL_NETWORK") != NULL) == of_network) {
    const char* at = getenv("WEFT_TEST_KILL_AT");
    if (at != NULL && atomic_fetch_add(&calls, 1) + 1 == atol(at)) kill(getpid(), SIGKILL);
  }
  --inside;
  return dlsym(RTLD_NEXT, name);
}

#define ANY_CALL(of_network, type, name, parameters, arguments) \
  type name parameters {                                        \
    type(*real) parameters;                                     \
    *(void**)&real = next(#name, of_network);                   \
    return real arguments;                                      \
  }
#define CALL(...) ANY_CALL(0, __VA_ARGS__)
#define NETWORK_CALL(...) ANY_CALL(1, __VA_ARGS__)

CALL(ssize_t, pwrite, (int fd, const void* data, size_t bytes, off_t at), (fd, data, bytes, at))
CALL(ssize_t, pwrite64, (int fd, const void* data, size_t bytes, off64_t at), (fd, data, bytes, at))
CALL(int, ftruncate, (int fd, off_t bytes), (fd, bytes))
CALL(int, ftruncate64, (int fd, off64_t bytes), (fd, bytes))
CALL(int, posix_fallocate, (int fd, off_t at, off_t bytes), (fd, at, bytes))
CALL(int, posix_fallocate64, (int fd, off64_t at, off64_t bytes), (fd, at, bytes))
CALL(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
CALL(int, fallocate64, (int fd, int mode, off64_t at, off64_t bytes), (fd, mode, at, bytes))
CALL(int, fchmod, (int fd, mode_t mode), (fd, mode))
CALL(int, futimens, (int fd, const struct timespec times[2]), (fd, times))
CALL(int, utimensat, (int at, const char* path, const struct timespec times[2], int flags),
     (at, path, times, flags))
CALL(int, fsync, (int fd), (fd))
CALL(int, fdatasync, (int fd), (fd))
CALL(int, mkdirat, (int at, const char* path, mode_t mode), (at, path, mode))
CALL(int, unlinkat, (int at, const char* path, int flags), (at, path, flags))
CALL(int, symlinkat, (const char* target, int at, const char* path), (target, at, path))
CALL(int, linkat, (int from, const char* old, int to, const char* path, int flags),
     (from, old, to, path, flags))
CALL(int, renameat, (int from, const char* old, int to, const char* path), (from, old, to, path))
CALL(int, renameat2, (int from, const char* old, int to, const char* path, unsigned flags),
     (from, old, to, path, flags))

NETWORK_CALL(ssize_t, send, (int fd, const void* data, size_t bytes, int flags),
             (fd, data, bytes, flags))
NETWORK_CALL(ssize_t, sendmsg, (int fd, const struct msghdr* message, int flags),
             (fd, message, flags))
NETWORK_CALL(ssize_t, recv, (int fd, void* data, size_t bytes, int flags), (fd, data, bytes, flags))
NETWORK_CALL(ssize_t, recvmsg, (int fd, struct msghdr* message, int flags), (fd, message, flags))
NETWORK_CALL(ssize_t, pread, (int fd, void* data, size_t bytes, off_t at), (fd, data, bytes, at))
NETWORK_CALL(ssize_t, pread64, (int fd, void* data, size_t bytes, off64_t at),
             (fd, data, bytes, at))
