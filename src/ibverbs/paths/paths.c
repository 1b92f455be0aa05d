/* Names of Weft's devices below /sys and /dev, for programs that look for such files themselves: a
 * library for LD_PRELOAD (`weft run` sets it) that redirects calls with these paths to a private
 * tree of files. And bind(2), for TCP ports that rdma_cm has (the end of this file).
 *
 * Which paths: rules[] below, and nothing else; every other call goes straight on. The tree is made
 * by Weft's libibverbs.so.1, the first time that a program looks (sysfs_tree.cc). WEFT_SYSFS=off
 * switches all of it off.
 *
 * In C and without libraries of its own: it is loaded into every program that `weft run` starts,
 * and into their children. Each function has the name of one of the C library's by a label, since
 * the declarations in the headers differ between releases. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* A path is redirected when it is `path` itself (`whole`), or when it is `path` and a name after it
 * that begins with `names`. A whole folder's listing holds the real entries too, as links. */
static const struct rule {
  const char* path;
  const char* names;
  int whole;
} rules[] = {
    {"/sys/class/infiniband", "weft", 1},
    {"/sys/class/infiniband_verbs", "uverbs-weft", 0},
    {"/dev/infiniband", "uverbs-weft", 0},
};

/* Set while the tree is being made: what that reads is the real thing. */
static _Thread_local int making;
static pthread_once_t made = PTHREAD_ONCE_INIT;
static const char* tree;

/* The path of a library in the folder of this one. 0: there is none. */
static int beside_this(const char* name, char* path, size_t size) {
  Dl_info self;
  if (!dladdr(&tree, &self) || !self.dli_fname) return 0;
  const char* slash = strrchr(self.dli_fname, '/');
  int folder = slash ? (int)(slash - self.dli_fname) : 0;
  return slash && snprintf(path, size, "%.*s/%s", folder, self.dli_fname, name) < (int)size;
}

static void make_tree(void) {
  const char* wish = secure_getenv("WEFT_SYSFS");
  if (wish && strcmp(wish, "off") == 0) return;
  char path[4096];
  if (!beside_this("libibverbs.so.1", path, sizeof path)) return;
  making = 1;
  void* verbs = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  const char* (*make)(void) = NULL;
  if (verbs) *(void**)&make = dlsym(verbs, "weft_ibv_sysfs_tree");
  if (make) tree = make();
  making = 0;
}

/* Whether `path` is `prefix`, with nothing or slashes behind it: 1; goes on below it: 2; else 0. */
static int place(const char* path, const char* prefix, const char** rest) {
  size_t length = strlen(prefix);
  if (strncmp(path, prefix, length) != 0) return 0;
  if (path[length] != '\0' && path[length] != '/') return 0;
  *rest = path + length;
  while (**rest == '/') ++*rest;
  return **rest == '\0' ? 1 : 2;
}

/* The path to use instead of `path`: in `buffer`, or `path` itself. */
static const char* lead(const char* path, char* buffer, size_t size) {
  if (!path || making) return path;
  if (strncmp(path, "/sys/class/inf", 14) != 0 && strncmp(path, "/dev/inf", 8) != 0) return path;
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; ++i) {
    const char* rest;
    int where = place(path, rules[i].path, &rest);
    if (where == 0 || (where == 1 && !rules[i].whole)) continue;
    if (where == 2 && strncmp(rest, rules[i].names, strlen(rules[i].names)) != 0) continue;
    pthread_once(&made, make_tree);
    if (!tree) return path;
    int length = snprintf(buffer, size, "%s%s", tree, path);
    return length > 0 && (size_t)length < size ? buffer : path;
  }
  return path;
}

#define LED(path) \
  char led[4096]; \
  (path) = lead((path), led, sizeof led)
/* Looks the C library's own function up, once: an idempotent store, so no lock. */
#define NEXT(type, name)        \
  static __typeof__(type) next; \
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, name)
/* A function that takes the place of the C library's `name`. */
#define TAKES(result, function, name, ...)                                           \
  __attribute__((visibility("default"))) result function(__VA_ARGS__) __asm__(name); \
  result function(__VA_ARGS__)

/* The mode follows only where a file may be made. */
#define MODE(flags, last)                  \
  mode_t mode = 0;                         \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list more;                          \
    va_start(more, last);                  \
    mode = (mode_t)va_arg(more, unsigned); \
    va_end(more);                          \
  }                                        \
  (void)0

#define OPEN(function, name)                                     \
  TAKES(int, function, name, const char* path, int flags, ...) { \
    MODE(flags, flags);                                          \
    LED(path);                                                   \
    NEXT(int (*)(const char*, int, ...), name);                  \
    return next(path, flags, mode);                              \
  }
OPEN(weft_open, "open")
OPEN(weft_open64, "open64")

#define OPENAT(function, name)                                           \
  TAKES(int, function, name, int at, const char* path, int flags, ...) { \
    MODE(flags, flags);                                                  \
    LED(path);                                                           \
    NEXT(int (*)(int, const char*, int, ...), name);                     \
    return next(at, path, flags, mode);                                  \
  }
OPENAT(weft_openat, "openat")
OPENAT(weft_openat64, "openat64")

/* What the compiler makes of open() under _FORTIFY_SOURCE. */
#define OPEN_2(function, name)                              \
  TAKES(int, function, name, const char* path, int flags) { \
    LED(path);                                              \
    NEXT(int (*)(const char*, int), name);                  \
    return next(path, flags);                               \
  }
OPEN_2(weft_open_2, "__open_2")
OPEN_2(weft_open64_2, "__open64_2")

#define OPENAT_2(function, name)                                    \
  TAKES(int, function, name, int at, const char* path, int flags) { \
    LED(path);                                                      \
    NEXT(int (*)(int, const char*, int), name);                     \
    return next(at, path, flags);                                   \
  }
OPENAT_2(weft_openat_2, "__openat_2")
OPENAT_2(weft_openat64_2, "__openat64_2")

#define FOPEN(function, name)                                        \
  TAKES(FILE*, function, name, const char* path, const char* mode) { \
    LED(path);                                                       \
    NEXT(FILE* (*)(const char*, const char*), name);                 \
    return next(path, mode);                                         \
  }
FOPEN(weft_fopen, "fopen")
FOPEN(weft_fopen64, "fopen64")

TAKES(int, weft_access, "access", const char* path, int how) {
  LED(path);
  NEXT(int (*)(const char*, int), "access");
  return next(path, how);
}

TAKES(int, weft_faccessat, "faccessat", int at, const char* path, int how, int flags) {
  LED(path);
  NEXT(int (*)(int, const char*, int, int), "faccessat");
  return next(at, path, how, flags);
}

#define STAT(function, name)                                \
  TAKES(int, function, name, const char* path, void* out) { \
    LED(path);                                              \
    NEXT(int (*)(const char*, void*), name);                \
    return next(path, out);                                 \
  }
STAT(weft_stat, "stat")
STAT(weft_stat64, "stat64")
STAT(weft_lstat, "lstat")
STAT(weft_lstat64, "lstat64")

#define FSTATAT(function, name)                                                \
  TAKES(int, function, name, int at, const char* path, void* out, int flags) { \
    LED(path);                                                                 \
    NEXT(int (*)(int, const char*, void*, int), name);                         \
    return next(at, path, out, flags);                                         \
  }
FSTATAT(weft_fstatat, "fstatat")
FSTATAT(weft_fstatat64, "fstatat64")

/* Programs that were linked before glibc 2.33 call these. */
#define XSTAT(function, name)                                            \
  TAKES(int, function, name, int version, const char* path, void* out) { \
    LED(path);                                                           \
    NEXT(int (*)(int, const char*, void*), name);                        \
    return next(version, path, out);                                     \
  }
XSTAT(weft_xstat, "__xstat")
XSTAT(weft_xstat64, "__xstat64")
XSTAT(weft_lxstat, "__lxstat")
XSTAT(weft_lxstat64, "__lxstat64")

TAKES(int, weft_statx, "statx", int at, const char* path, int flags, unsigned mask, void* out) {
  LED(path);
  NEXT(int (*)(int, const char*, int, unsigned, void*), "statx");
  return next(at, path, flags, mask, out);
}

TAKES(ssize_t, weft_readlink, "readlink", const char* path, char* out, size_t size) {
  LED(path);
  NEXT(ssize_t(*)(const char*, char*, size_t), "readlink");
  return next(path, out, size);
}

TAKES(ssize_t, weft_readlinkat, "readlinkat", int at, const char* path, char* out, size_t size) {
  LED(path);
  NEXT(ssize_t(*)(int, const char*, char*, size_t), "readlinkat");
  return next(at, path, out, size);
}

TAKES(char*, weft_realpath, "realpath", const char* path, char* out) {
  LED(path);
  NEXT(char* (*)(const char*, char*), "realpath");
  return next(path, out);
}

TAKES(DIR*, weft_opendir, "opendir", const char* path) {
  LED(path);
  NEXT(DIR * (*)(const char*), "opendir");
  return next(path);
}

#define SCANDIR(function, name)                                                         \
  TAKES(int, function, name, const char* path, void* list, void* wanted, void* order) { \
    LED(path);                                                                          \
    NEXT(int (*)(const char*, void*, void*, void*), name);                              \
    return next(path, list, wanted, order);                                             \
  }
SCANDIR(weft_scandir, "scandir")
SCANDIR(weft_scandir64, "scandir64")

/* --- ports --- */

/* The port of a TCP address; 0: of something else. */
static unsigned short tcp_port(int fd, const struct sockaddr* address, socklen_t size) {
  int type = 0;
  socklen_t length = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) return 0;
  if (address->sa_family == AF_INET && size >= sizeof(struct sockaddr_in)) {
    return ntohs(((const struct sockaddr_in*)(const void*)address)->sin_port);
  }
  if (address->sa_family == AF_INET6 && size >= sizeof(struct sockaddr_in6)) {
    return ntohs(((const struct sockaddr_in6*)(const void*)address)->sin6_port);
  }
  return 0;
}

/* Whether a listener of rdma_cm in this process had that TCP port, and has moved to another. */
static int port_was_yielded(unsigned short port) {
  char path[4096];
  if (port == 0 || !beside_this("librdmacm.so.1", path, sizeof path)) return 0;
  void* cm = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (!cm) return 0;
  int (*yield)(unsigned short) = NULL;
  *(void**)&yield = dlsym(cm, "weft_cm_yield_port");
  int yielded = yield && yield(port);
  dlclose(cm);
  return yielded;
}

/* rdma_cm's ports are a space of their own. On an iWARP device a listener of rdma_cm has the TCP
 * port of its number all the same, for peers that are not Weft, and leaves it to a listener of the
 * program. */
TAKES(int, weft_bind, "bind", int fd, const struct sockaddr* address, socklen_t size) {
  NEXT(int (*)(int, const struct sockaddr*, socklen_t), "bind");
  if (next(fd, address, size) == 0) return 0;
  int error = errno;
  if (error == EADDRINUSE && address && port_was_yielded(tcp_port(fd, address, size))) {
    return next(fd, address, size);
  }
  errno = error;
  return -1;
}
