#include "support/nth_fails.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <new>

namespace weft::test {
namespace {

// Read by every allocation of the process, also before main(): plain data, without constructors.
struct Plan {
  Fails what = Fails::kAllocation;
  int left = 0;   // calls until the one that fails; 0: no call is to fail
  int error = 0;  // of the one that has failed
  const char* name = "";
};
thread_local constinit Plan plan;

// Of all threads but the one that is in during().
struct Elsewhere {
  std::atomic<Fails> what{Fails::kAllocation};
  std::atomic<int> left{0};
  std::atomic<int> error{0};
  std::atomic<const char*> name{nullptr};  // of the call that has failed
};
constinit Elsewhere elsewhere;

bool is_elsewhere(Fails what) {
  return what == Fails::kAllocationElsewhere || what == Fails::kSystemCallElsewhere;
}

bool is_the_one_elsewhere(Fails what, const char* name, int error) {
  if (elsewhere.left.load(std::memory_order_relaxed) <= 0) return false;
  if (is_elsewhere(plan.what)) return false;  // of the thread that is in during()
  const Fails wanted =
      what == Fails::kAllocation ? Fails::kAllocationElsewhere : Fails::kSystemCallElsewhere;
  if (elsewhere.what.load() != wanted || elsewhere.left.fetch_sub(1) != 1) return false;
  elsewhere.error.store(error);
  elsewhere.name.store(name);
  errno = error;
  return true;
}

// Before a call of a thread that is to be cancelled.
void cancel_here(const char* name) {
  if (plan.left == 0 || plan.what != Fails::kNothingButCancelled || --plan.left != 0) return;
  plan.error = ECANCELED;
  plan.name = name;
  pthread_cancel(pthread_self());
}

// Whether this call is the one; then errno is set.
bool is_the_one(Fails what, const char* name, int error) {
  if (what == Fails::kSystemCall) cancel_here(name);
  if (is_the_one_elsewhere(what, name, error)) return true;
  if (plan.left == 0 || plan.what != what) return false;
  if (--plan.left != 0) return false;
  plan.error = error;
  plan.name = name;
  errno = error;
  return true;
}

bool call_fails(const char* name, int error) { return is_the_one(Fails::kSystemCall, name, error); }

// The function that would be called if this file had none of this name.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define WEFT_NEXT(name)                                   \
  (*[] {                                                  \
    static auto* const f = next<decltype(::name)>(#name); \
    return f;                                             \
  }())

}  // namespace

NthFails::Counting::Counting(NthFails& o) : owner(o) {
  plan = {};
  plan.what = owner.what_;
  if (is_elsewhere(owner.what_)) {
    elsewhere.name.store(nullptr);
    elsewhere.what.store(owner.what_);
    elsewhere.left.store(owner.n_);
  } else {
    plan.left = owner.n_;
  }
}
NthFails::Counting::~Counting() {
  if (is_elsewhere(owner.what_)) {
    elsewhere.left.store(0);
    if (const char* name = elsewhere.name.load(); name != nullptr) {
      plan.error = elsewhere.error.load();
      plan.name = name;
    }
  }
  plan.what = Fails::kAllocation;
  plan.left = 0;
  if (plan.error == 0) return;
  owner.error_ = plan.error;
  owner.function_ = plan.name;
}

std::string NthFails::name() const { return "call " + std::to_string(n_) + ": " + function_; }

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 3;  // ".", "..", and the folder's own
}

void passes(const char* name) { cancel_here(name); }

bool allocation_fails(const char* name) { return is_the_one(Fails::kAllocation, name, ENOMEM); }

}  // namespace weft::test

// All libraries of the program see what follows.
#pragma GCC visibility push(default)

using weft::test::allocation_fails;
using weft::test::call_fails;
using weft::test::next;
using weft::test::passes;

// --- memory ---

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace {
void* allocate(std::size_t size, const char* name) noexcept {
  return allocation_fails(name) ? nullptr : std::malloc(size != 0 ? size : 1);
}
void* allocate(std::size_t size, std::align_val_t alignment, const char* name) noexcept {
  void* at = nullptr;
  if (allocation_fails(name)) return nullptr;
  return posix_memalign(&at, static_cast<std::size_t>(alignment), size) == 0 ? at : nullptr;
}
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t n) { return or_throw(allocate(n, "new")); }
void* operator new[](std::size_t n) { return or_throw(allocate(n, "new[]")); }
void* operator new(std::size_t n, std::align_val_t a) { return or_throw(allocate(n, a, "new")); }
void* operator new[](std::size_t n, std::align_val_t a) {
  return or_throw(allocate(n, a, "new[]"));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, "new"); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, "new[]"); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, a, "new");
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, a, "new[]");
}
void operator delete(void* at, const std::nothrow_t&) noexcept { std::free(at); }
void operator delete[](void* at, const std::nothrow_t&) noexcept { std::free(at); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete[](void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t, std::align_val_t) noexcept { std::free(at); }

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  if (allocation_fails("aligned_alloc")) return nullptr;
  return WEFT_NEXT(aligned_alloc)(alignment, size);
}

#else

extern "C" {

// What glibc has behind its own names.
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) noexcept {
  return allocation_fails("malloc") ? nullptr : __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  return allocation_fails("calloc") ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* at, std::size_t size) noexcept {
  return allocation_fails("realloc") ? nullptr : __libc_realloc(at, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return allocation_fails("aligned_alloc") ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) noexcept {
  if (allocation_fails("posix_memalign")) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out != nullptr ? 0 : ENOMEM;
}

}  // extern "C"

#endif

// --- system calls ---

extern "C" {

int socket(int family, int type, int protocol) noexcept {
  if (call_fails("socket", EMFILE)) return -1;
  return WEFT_NEXT(socket)(family, type, protocol);
}
int socketpair(int family, int type, int protocol, int out[2]) noexcept {
  if (call_fails("socketpair", EMFILE)) return -1;
  return WEFT_NEXT(socketpair)(family, type, protocol, out);
}
int accept4(int fd, sockaddr* peer, socklen_t* size, int flags) {
  if (call_fails("accept4", EMFILE)) return -1;
  return WEFT_NEXT(accept4)(fd, peer, size, flags);
}
int bind(int fd, const sockaddr* local, socklen_t size) noexcept {
  if (call_fails("bind", ENOMEM)) return -1;
  return WEFT_NEXT(bind)(fd, local, size);
}
int listen(int fd, int backlog) noexcept {
  if (call_fails("listen", ENOMEM)) return -1;
  return WEFT_NEXT(listen)(fd, backlog);
}
int connect(int fd, const sockaddr* peer, socklen_t size) {
  if (call_fails("connect", ENOBUFS)) return -1;
  return WEFT_NEXT(connect)(fd, peer, size);
}
int setsockopt(int fd, int level, int name, const void* value, socklen_t size) noexcept {
  if (call_fails("setsockopt", ENOBUFS)) return -1;
  return WEFT_NEXT(setsockopt)(fd, level, name, value, size);
}
int getsockopt(int fd, int level, int name, void* value, socklen_t* size) noexcept {
  if (call_fails("getsockopt", ENOBUFS)) return -1;
  return WEFT_NEXT(getsockopt)(fd, level, name, value, size);
}
int getsockname(int fd, sockaddr* name, socklen_t* size) noexcept {
  if (call_fails("getsockname", ENOBUFS)) return -1;
  return WEFT_NEXT(getsockname)(fd, name, size);
}
int getpeername(int fd, sockaddr* name, socklen_t* size) noexcept {
  if (call_fails("getpeername", ENOBUFS)) return -1;
  return WEFT_NEXT(getpeername)(fd, name, size);
}

int eventfd(unsigned count, int flags) noexcept {
  return call_fails("eventfd", EMFILE) ? -1 : WEFT_NEXT(eventfd)(count, flags);
}
int timerfd_create(clockid_t clock, int flags) noexcept {
  return call_fails("timerfd_create", EMFILE) ? -1 : WEFT_NEXT(timerfd_create)(clock, flags);
}
int inotify_init1(int flags) noexcept {
  return call_fails("inotify_init1", EMFILE) ? -1 : WEFT_NEXT(inotify_init1)(flags);
}
int inotify_add_watch(int fd, const char* path, std::uint32_t mask) noexcept {
  return call_fails("inotify_add_watch", ENOSPC) ? -1
                                                 : WEFT_NEXT(inotify_add_watch)(fd, path, mask);
}
int epoll_create1(int flags) noexcept {
  return call_fails("epoll_create1", EMFILE) ? -1 : WEFT_NEXT(epoll_create1)(flags);
}
// Linux takes one out, or changes one, without memory.
int epoll_ctl(int epoll, int what, int fd, epoll_event* event) noexcept {
  if (what == EPOLL_CTL_ADD && call_fails("epoll_ctl", ENOMEM)) return -1;
  return WEFT_NEXT(epoll_ctl)(epoll, what, fd, event);
}

int memfd_create(const char* name, unsigned flags) noexcept {
  return call_fails("memfd_create", EMFILE) ? -1 : WEFT_NEXT(memfd_create)(name, flags);
}
void* mmap(void* at, std::size_t size, int rights, int flags, int fd, off_t offset) noexcept {
  if (call_fails("mmap", ENOMEM)) return MAP_FAILED;
  return WEFT_NEXT(mmap)(at, size, rights, flags, fd, offset);
}
int ftruncate(int fd, off_t size) noexcept {
  return call_fails("ftruncate", ENOSPC) ? -1 : WEFT_NEXT(ftruncate)(fd, size);
}
int posix_fallocate(int fd, off_t offset, off_t size) {
  return call_fails("posix_fallocate", ENOSPC) ? ENOSPC
                                               : WEFT_NEXT(posix_fallocate)(fd, offset, size);
}
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return call_fails("open", EMFILE) ? -1 : WEFT_NEXT(open)(path, flags, mode);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  if (call_fails("pthread_create", EAGAIN)) return EAGAIN;
  return WEFT_NEXT(pthread_create)(thread, attributes, run, argument);
}

// Those that ask the kernel for something; to wait on a futex, or to write to an eventfd, does not.
long syscall(long number, ...) noexcept {
  va_list more;
  va_start(more, number);
  long a[6];
  for (long& one : a) one = va_arg(more, long);
  va_end(more);
  int error = 0;
  switch (number) {
    case SYS_openat: error = EMFILE; break;
    case SYS_madvise: error = ENOMEM; break;
    case SYS_sendto:
    case SYS_sendmsg: error = ENOBUFS; break;
    default: break;
  }
  if (error == 0) passes("syscall");
  if (error != 0 && call_fails("syscall", error)) return -1;
  return WEFT_NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// Those that never fail here.

int close(int fd) {
  passes("close");
  return WEFT_NEXT(close)(fd);
}
ssize_t read(int fd, void* to, std::size_t size) {
  passes("read");
  return WEFT_NEXT(read)(fd, to, size);
}
ssize_t write(int fd, const void* from, std::size_t size) {
  passes("write");
  return WEFT_NEXT(write)(fd, from, size);
}
int fcntl(int fd, int what, ...) {
  va_list more;
  va_start(more, what);
  const long argument = va_arg(more, long);
  va_end(more);
  passes("fcntl");
  return WEFT_NEXT(fcntl)(fd, what, argument);
}
int poll(pollfd* all, nfds_t count, int timeout_ms) {
  passes("poll");
  return WEFT_NEXT(poll)(all, count, timeout_ms);
}
int ppoll(pollfd* all, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  passes("ppoll");
  return WEFT_NEXT(ppoll)(all, count, timeout, mask);
}
int epoll_wait(int epoll, epoll_event* events, int room, int timeout_ms) {
  passes("epoll_wait");
  return WEFT_NEXT(epoll_wait)(epoll, events, room, timeout_ms);
}
ssize_t recv(int fd, void* to, std::size_t size, int flags) {
  passes("recv");
  return WEFT_NEXT(recv)(fd, to, size, flags);
}
ssize_t send(int fd, const void* from, std::size_t size, int flags) {
  passes("send");
  return WEFT_NEXT(send)(fd, from, size, flags);
}
int shutdown(int fd, int how) noexcept {
  passes("shutdown");
  return WEFT_NEXT(shutdown)(fd, how);
}
ssize_t getrandom(void* to, std::size_t size, unsigned flags) {
  passes("getrandom");
  return WEFT_NEXT(getrandom)(to, size, flags);
}
int munmap(void* at, std::size_t size) noexcept {
  passes("munmap");
  return WEFT_NEXT(munmap)(at, size);
}

}  // extern "C"

#pragma GCC visibility pop
