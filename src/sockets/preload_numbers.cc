// Descriptor numbers: close, dup, fcntl, ioctl; and where this library begins and ends.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "sockets/preload.h"
#include "sockets/preload_direct.h"
#include "sockets/socket_list.h"

namespace weft::sockets {

void* real_symbol(const char* name) { return dlsym(RTLD_NEXT, name); }

namespace {

__attribute__((constructor)) void begin() {
  static_cast<void>(real());
  own_memory();
  // Standard input and output may be used by stdio, whose calls we do not see.
  for (const int fd : {0, 1, 2}) begin_relayed(fd);
  pthread_atfork(table::before_fork, table::after_fork, [] {
    table::in_child();
    list::in_child();
    own_memory();
  });
}

__attribute__((destructor)) void end() { table::at_exit(); }

// Everything in [first, last] but Weft's own.
int close_each(unsigned first, unsigned last, int flags) {
  // Before exec: Weft's own are close-on-exec anyhow.
  if (borrowing()) return real().close_range(first, last, flags);
  const std::lock_guard lock(table::mutex());
  unsigned from = first;
  const auto top = static_cast<unsigned>(std::max(table::highest(), 0));
  for (unsigned fd = first; fd <= last && fd < top; ++fd) {
    if (table::kind_of(static_cast<int>(fd)) == Kind::kInternal) {
      if (fd > from) real().close_range(from, fd - 1, flags);
      from = fd + 1;
    } else if ((flags & CLOSE_RANGE_CLOEXEC) == 0) {
      table::forget(static_cast<int>(fd));
    }
  }
  return from <= last ? real().close_range(from, last, flags) : 0;
}

// `to` is about to be replaced. Weft's own descriptor there moves away.
void vacate(int to) {
  if (table::kind_of(to) != Kind::kInternal) return;
  const std::lock_guard lock(table::mutex());
  const int spare = real().fcntl(to, F_DUPFD_CLOEXEC, to + 1);
  if (spare < 0) return;
  for (int i = 0; i < table::highest(); ++i) {
    Conn* conn = table::conn_of(i);
    if (conn == nullptr) continue;
    if (conn->tcp == to) conn->tcp = spare;
    if (conn->listen_mark == to) conn->listen_mark = spare;
  }
  table::put(spare, Kind::kInternal, nullptr);
  table::put(to, Kind::kUnknown, nullptr);
}

int set_flags(int fd, long value) {
  const int result = real().fcntl(fd, F_SETFL, value);
  if (result != 0) return result;
  const Use use(fd);
  if (use.channel() != nullptr) {
    use.channel()->end().nonblocking = (value & O_NONBLOCK) != 0 ? 1 : 0;
    if ((value & (O_NONBLOCK | O_ASYNC)) != 0) use.channel()->mirror();
  }
  return result;
}

void enter_sandbox() {
  for (int fd = 0; fd < table::highest(); ++fd) {
    if (table::kind_of(fd) == Kind::kUndecided) static_cast<void>(decide(fd, true));
  }
  stop_classifying();
  Channel::restrict_calls();
}

int do_fcntl(int fd, int command, long value) {
  if (table::kind_of(fd) == Kind::kDirect) return direct::fcntl(fd, command, value);
  if (command == F_SETFL) return set_flags(fd, value);
  const int result = real().fcntl(fd, command, value);
  if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) {
    const std::lock_guard lock(table::mutex());
    table::copy(fd, result);
  }
  return result;
}

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT int close(int fd) {
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kInternal) return fail_with(EBADF);
  if (kind == Kind::kDirect && !borrowing()) return direct::close(fd);
  if (kind > Kind::kPlain && borrowing()) {
    note_borrowed(fd, nullptr);
    return real().close(fd);
  }
  if (kind != Kind::kUnknown) table::forget(fd);
  return real().close(fd);
}

WEFT_EXPORT int close_range(unsigned first, unsigned last, int flags) {
  if (first > last || (flags & CLOSE_RANGE_UNSHARE) != 0) {
    return real().close_range(first, last, flags);
  }
  return close_each(first, last, flags);
}

WEFT_EXPORT void closefrom(int first) {
  close_each(static_cast<unsigned>(std::max(first, 0)), ~0U, 0);
}

WEFT_EXPORT int dup(int fd) {
  if (table::kind_of(fd) == Kind::kInternal) return fail_with(EBADF);
  if (table::kind_of(fd) == Kind::kDirect) return fail_with(EOPNOTSUPP);
  const int made = real().dup(fd);
  if (made >= 0) {
    const std::lock_guard lock(table::mutex());
    table::copy(fd, made);
  }
  return made;
}

WEFT_EXPORT int dup3(int from, int to, int flags) {
  if (table::kind_of(from) == Kind::kInternal) return fail_with(EBADF);
  if (borrowing()) {
    const int result = real().dup3(from, to, flags);
    if (result >= 0) note_borrowed(to, conn_now(from));
    return result;
  }
  if (table::kind_of(from) == Kind::kDirect) return fail_with(EOPNOTSUPP);
  if (from != to && table::kind_of(to) == Kind::kDirect) direct::close(to);
  if (from != to) vacate(to);
  const std::lock_guard lock(table::mutex());
  // First, so that a channel keeps a number that lives.
  const int result = real().dup3(from, to, flags);
  if (result >= 0) table::copy(from, to);
  return result;
}

WEFT_EXPORT int dup2(int from, int to) {
  if (from == to || table::kind_of(from) == Kind::kInternal) return real().dup2(from, to);
  if (borrowing()) {
    const int result = real().dup2(from, to);
    if (result >= 0) note_borrowed(to, conn_now(from));
    return result;
  }
  if (table::kind_of(from) == Kind::kDirect) return fail_with(EOPNOTSUPP);
  if (table::kind_of(to) == Kind::kDirect) direct::close(to);
  vacate(to);
  const std::lock_guard lock(table::mutex());
  const int result = real().dup2(from, to);
  if (result >= 0) table::copy(from, to);
  return result;
}

WEFT_EXPORT int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  return do_fcntl(fd, command, value);
}

WEFT_EXPORT int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  return do_fcntl(fd, command, value);
}

WEFT_EXPORT int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == FIONREAD && table::kind_of(fd) == Kind::kUndecided) resolve(fd, false);
  if (request == FIONBIO && table::kind_of(fd) == Kind::kDirect && argument != nullptr) {
    return direct::fcntl(fd, F_SETFL, *static_cast<int*>(argument) != 0 ? O_NONBLOCK : 0);
  }
  const Use use(fd);
  if (use.channel() == nullptr || argument == nullptr) {
    return real().ioctl(fd, request, argument);
  }
  Channel& channel = *use.channel();
  if (request == FIONREAD || request == TIOCOUTQ) {
    const std::size_t n = request == FIONREAD ? channel.unread() : channel.unsent();
    *static_cast<int*>(argument) = static_cast<int>(n);
    return 0;
  }
  const int result = real().ioctl(fd, request, argument);
  if (result == 0 && request == FIONBIO) {
    channel.end().nonblocking = *static_cast<int*>(argument) != 0 ? 1 : 0;
    if (*static_cast<int*>(argument) != 0) channel.mirror();
  }
  if (result == 0 && request == FIOASYNC) channel.mirror();
  return result;
}

WEFT_EXPORT FILE* fdopen(int fd, const char* mode) {
  if (table::kind_of(fd) == Kind::kUndecided) resolve(fd, mode != nullptr && mode[0] == 'w');
  if (table::kind_of(fd) == Kind::kChannel) {
    make_relayed(fd, RelayStart::kNow);  // stdio reads and writes out of our sight
  }
  return real().fdopen(fd, mode);
}

// A process that is about to be sandboxed, as sshd's: what is not known yet stays the kernel's,
// since finding out takes system calls that may end the process.
WEFT_EXPORT int prctl(int option, ...) {
  va_list arguments;
  va_start(arguments, option);
  unsigned long a[4];
  for (unsigned long& one : a) one = va_arg(arguments, unsigned long);
  va_end(arguments);
  if (option == PR_SET_SECCOMP) enter_sandbox();
  return static_cast<int>(syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]));
}
