// Numbers that get another holder: by fork, by a program that is started, by a message. From then
// on such a socket is the kernel's alone, but for one without a ring that fork() shared, when all
// but one of its holders are gone (holders.h).
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "os/guest_output.h"
#include "sockets/granted/granted.h"
#include "sockets/granted/holders.h"
#include "sockets/granted/number_states.h"
#include "sockets/granted/spiller.h"
#include "sockets/passed_numbers.h"
#include "sockets/socket_settings.h"

namespace weft::sockets::granted {
namespace {

bool inherits(int fd) { return (real().fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0; }

How inherited(int fd) { return inherits(fd) ? How::kStays : How::kGone; }

// An exec that fails closes nothing.
How by_exec(int fd) {
  Number* number = numbers::find(fd);
  if (number != nullptr) holders::add_unknown(*number);
  return inherits(fd) ? How::kStays : How::kMayClose;
}

// A program is about to be started, in this process or in a child that shares its memory.
void before_start() { leave_range(0, ~0U, inherited); }

bool has_lane(const Number& number) { return number.lane.load() != nullptr; }

How if_with_lane(int fd) {
  const Number* number = numbers::find(fd);
  return number != nullptr && has_lane(*number) ? How::kStays : How::kGone;
}

How if_not_counted(int fd) {
  const Number* number = numbers::find(fd);
  const bool left = number != nullptr && !has_lane(*number) && !holders::counted(*number);
  return left ? How::kStays : How::kGone;
}

// With no lane to be made meanwhile. Whoever is not counted here is one holder too many for those
// that an earlier fork has counted.
void share_numbers() {
  bool room = true;
  for (int fd = 0; fd < numbers::end(); ++fd) {
    Number* number = numbers::find(fd);
    if (number == nullptr) continue;
    if (number->calls.load() == kKernels || has_lane(*number)) {
      holders::add_unknown(*number);
    } else if (!room && !holders::counted(*number)) {
      leave_to_kernel(fd, Why::kShared);
    } else if (!holders::share(*number)) {
      room = false;
      leave_to_kernel(fd, Why::kShared);
    }
  }
}

// A number with a lane is the kernel's from now on: both ends would have to make another. Other
// threads may make numbers until the fork, and lanes until there is the lock; one that is at it all
// the time is not waited for.
void before_fork() {
  constexpr int kTries = 100;
  for (int tries = 0;; ++tries) {
    leave_range(0, ~0U, if_with_lane);
    lanes::before_fork();
    if (!numbers::any_lane()) break;
    if (tries == kTries) break;
    lanes::after_fork();
    sched_yield();  // to the one that is just leaving a number
  }
  share_numbers();
}

// The child has the numbers that were made meanwhile, too.
void after_fork() {
  numbers::note_fork();
  leave_range(0, ~0U, if_not_counted);
  lanes::after_fork();
  leave_range(0, ~0U, if_with_lane);
}

__attribute__((constructor)) void begin() {
  static_cast<void>(real());
  // For the first time, which a signal handler may not do.
  static_cast<void>(os::may_say());
  static_cast<void>(busy_calls());
  load_settings();
  own_memory();
  pthread_atfork(before_fork, after_fork, [] {
    own_memory();
    numbers::note_fork();  // a call that a signal handler has interrupted goes on here, too
    numbers::in_child();
    holders::in_child();
    states::in_child();
    spiller::in_child();
    lanes::in_child();  // last: signals come again
  });
}

// Octets that lie in rings go to TCP before the process is gone.
__attribute__((destructor)) void end() {
  if (!borrowing()) leave_range(0, ~0U, closes);
}

}  // namespace

void before_exec() {
  if (borrowing()) {
    before_start();
  } else {
    leave_range(0, ~0U, by_exec);
  }
}

void before_clone(unsigned long flags) {
  if ((flags & CLONE_FILES) == 0 && !borrowing()) leave_range(0, ~0U, stays);
}

void note_passed(const msghdr* message) {
  if (message == nullptr) return;
  each_passed(*message, [](int fd) { leave_to_kernel(fd, Why::kShared); });
}

void note_arrived(const msghdr& message) { each_passed(message, forget_closed); }

}  // namespace weft::sockets::granted

using namespace weft::sockets;
using namespace weft::sockets::granted;

WEFT_SEEN int execve(const char* path, char* const argv[], char* const envp[]) {
  before_exec();
  return real().execve(path, argv, envp);
}

WEFT_SEEN int execv(const char* path, char* const argv[]) { return execve(path, argv, environ); }

WEFT_SEEN int execvp(const char* file, char* const argv[]) {
  before_exec();
  return real().execvp(file, argv);
}

WEFT_SEEN int execvpe(const char* file, char* const argv[], char* const envp[]) {
  before_exec();
  return real().execvpe(file, argv, envp);
}

WEFT_SEEN int fexecve(int fd, char* const argv[], char* const envp[]) {
  before_exec();
  return real().fexecve(fd, argv, envp);
}

namespace {

// How many arguments an execl-like call has, with the null behind them.
std::size_t count_arguments(const char* first, va_list& arguments) {
  std::size_t count = 1;
  for (const char* one = first; one != nullptr; ++count) one = va_arg(arguments, const char*);
  return count;
}

void collect(const char* first, va_list& arguments, char** out, std::size_t count) {
  assert(count != 0);
  out[0] = const_cast<char*>(first);
  for (std::size_t i = 1; i < count; ++i) out[i] = va_arg(arguments, char*);
}

}  // namespace

// On the stack, as the C library does: no memory may be had here.
#define WEFT_ARGUMENTS(first, argv, arguments)                                     \
  va_list arguments;                                                               \
  va_start(arguments, first);                                                      \
  const std::size_t count = count_arguments(first, arguments);                     \
  va_end(arguments);                                                               \
  auto* const argv = static_cast<char**>(__builtin_alloca(count * sizeof(char*))); \
  va_start(arguments, first);                                                      \
  collect(first, arguments, argv, count)

WEFT_SEEN int execl(const char* path, const char* first, ...) {
  WEFT_ARGUMENTS(first, argv, arguments);
  va_end(arguments);
  return execv(path, argv);
}

WEFT_SEEN int execlp(const char* file, const char* first, ...) {
  WEFT_ARGUMENTS(first, argv, arguments);
  va_end(arguments);
  return execvp(file, argv);
}

WEFT_SEEN int execle(const char* path, const char* first, ...) {
  WEFT_ARGUMENTS(first, argv, arguments);
  char* const* envp = va_arg(arguments, char* const*);
  va_end(arguments);
  return execve(path, argv, envp);
}

// These start a program without fork(), and without a call of execve() that is seen.
WEFT_SEEN int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                          const posix_spawnattr_t* attributes, char* const argv[],
                          char* const envp[]) {
  WEFT_NEXT(posix_spawn);
  leave_range(0, ~0U, actions == nullptr ? inherited : stays);
  return next(pid, path, actions, attributes, argv, envp);
}

WEFT_SEEN int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                           const posix_spawnattr_t* attributes, char* const argv[],
                           char* const envp[]) {
  WEFT_NEXT(posix_spawnp);
  leave_range(0, ~0U, actions == nullptr ? inherited : stays);
  return next(pid, file, actions, attributes, argv, envp);
}

WEFT_SEEN int system(const char* command) {
  WEFT_NEXT(system);
  before_start();
  return next(command);
}

WEFT_SEEN FILE* popen(const char* command, const char* mode) {
  WEFT_NEXT(popen);
  before_start();
  return next(command, mode);
}

// fork() by other names: its handlers do not run. The child makes no rings of its own either.
WEFT_SEEN pid_t _Fork() {
  WEFT_NEXT(_Fork);
  before_clone(0);
  return next();
}

// `more`: parent_tid, tls, child_tid, as far as the flags ask for them.
WEFT_SEEN int clone(int (*run)(void*), void* stack, int flags, void* argument, ...) {
  WEFT_NEXT(clone);
  before_clone(static_cast<unsigned>(flags));
  va_list more;
  va_start(more, argument);
  void* const parent_tid = va_arg(more, void*);
  void* const tls = va_arg(more, void*);
  void* const child_tid = va_arg(more, void*);
  va_end(more);
  return next(run, stack, flags, argument, parent_tid, tls, child_tid);
}

// The process is about to give up calls or rights that a ring needs.
WEFT_SEEN int prctl(int option, ...) {
  va_list arguments;
  va_start(arguments, option);
  unsigned long a[4];
  for (unsigned long& one : a) one = va_arg(arguments, unsigned long);
  va_end(arguments);
  if (option == PR_SET_SECCOMP) stop();
  return static_cast<int>(real().syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]));
}

WEFT_SEEN int unshare(int flags) {
  WEFT_NEXT(unshare);
  stop();
  return next(flags);
}

WEFT_SEEN int setns(int fd, int kind) {
  WEFT_NEXT(setns);
  stop();
  return next(fd, kind);
}

WEFT_SEEN int chroot(const char* path) {
  WEFT_NEXT(chroot);
  stop();
  return next(path);
}

// Without the C library's own end of the process.
WEFT_SEEN void _exit(int status) {
  if (!borrowing()) leave_range(0, ~0U, closes);
  real().syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

WEFT_SEEN void _Exit(int status) { _exit(status); }
