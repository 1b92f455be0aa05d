// Descriptor numbers: close, dup, fcntl, ioctl; and where this library begins and ends.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "sockets/preload/direct_library.h"
#include "sockets/preload/preload.h"
#include "sockets/preload/preload_decide.h"
#include "sockets/preload/preload_direct.h"
#include "sockets/preload/preload_exec.h"
#include "sockets/preload/preload_hot.h"
#include "sockets/preload/preload_members.h"
#include "sockets/preload/preload_relay.h"
#include "sockets/preload/socket_list.h"

namespace weft::sockets {

namespace {

__attribute__((constructor)) void begin() {
  static_cast<void>(real());
  own_memory();
  // Standard input and output may be used by stdio, whose calls we do not see.
  for (const int fd : {0, 1, 2}) begin_relayed(fd);
  pthread_atfork(table::before_fork, table::after_fork, [] {
    table::in_child();
    list::in_child();
    epolls::in_child();
    hot::in_child();
    own_memory();
  });
}

__attribute__((destructor)) void end() { table::at_exit(); }

// The number, perhaps an epoll instance's, is about to be closed.
void forget_instance(int fd) {
  if (epolls::any()) epolls::forget(fd);
  hot::forget(fd);
}

// Everything in [first, last] but Weft's own.
int close_each(unsigned first, unsigned last, int flags) {
  // Before exec: Weft's own are close-on-exec anyhow.
  if (borrowing()) return real().close_range(first, last, flags);
  const bool marks_only = (static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) != 0;
  const auto end = static_cast<unsigned>(std::max(table::highest(), 0));
  for (unsigned fd = first; !marks_only && fd <= last && fd < end; ++fd) {
    if (table::kind_of(static_cast<int>(fd)) == Kind::kDirect) direct::close(static_cast<int>(fd));
    forget_instance(static_cast<int>(fd));
  }
  const table::Lock lock;
  unsigned from = first;
  const auto top = static_cast<unsigned>(std::max(table::highest(), 0));
  for (unsigned fd = first; fd <= last && fd < top; ++fd) {
    if (table::kind_of(static_cast<int>(fd)) == Kind::kInternal) {
      if (fd > from) real().close_range(from, fd - 1, flags);
      from = fd + 1;
    } else if (!marks_only) {
      table::forget(static_cast<int>(fd));
    }
  }
  return from <= last ? real().close_range(from, last, flags) : 0;
}

// `to` is about to be replaced. An rsocket there ends, and Weft's own descriptor moves away; false:
// there is no number for it.
bool vacate(int to) {
  const Kind kind = table::kind_of(to);
  if (kind == Kind::kDirect) direct::close(to);
  forget_instance(to);
  if (kind != Kind::kInternal) return true;
  const table::Lock lock;
  int spare = real().fcntl(to, F_DUPFD_CLOEXEC, to + 1);
  if (spare < 0) spare = real().fcntl(to, F_DUPFD_CLOEXEC, 3);
  if (spare < 0) return false;
  for (int i = 0; i < table::highest(); ++i) {
    Conn* conn = table::conn_of(i);
    if (conn == nullptr) continue;
    if (conn->tcp == to) conn->tcp = spare;
    if (conn->listen_mark == to) conn->listen_mark = spare;
  }
  epolls::moved(to, spare);
  table::put(spare, Kind::kInternal, nullptr);
  table::put(to, Kind::kUnknown, nullptr);
  return true;
}

// `made` is the kernel's copy of `fd`: it means the same. -1 with errno, and the copy is closed.
int note_copy(int fd, int made) {
  if (table::kind_of(fd) == Kind::kDirect && !direct::copy(fd, made)) {
    const int error = errno;
    real().close(made);
    return fail_with(error);
  }
  if (epolls::any()) epolls::copy(fd, made);
  const table::Lock lock;
  table::copy(fd, made);
  return made;
}

// dup2(2) and dup3(2) of different numbers, neither of them Weft's own; `call` does it.
template <class Call>
int replace(int from, int to, Call call) {
  if (borrowing()) {
    const int result = call();
    if (result >= 0) note_borrowed(to, conn_now(from));
    return result;
  }
  if (real().fcntl(from, F_GETFD) < 0) return -1;  // as the kernel, before anything is closed
  const Kind kind = table::kind_of(from);
  if (!vacate(to)) return -1;
  if (kind == Kind::kDirect || epolls::any()) {
    const int result = call();
    return result < 0 ? result : note_copy(from, to);
  }
  const table::Lock lock;
  // First, so that a channel keeps a number that lives.
  const int result = call();
  if (result >= 0) table::copy(from, to);
  return result;
}

// Says whether each message of a connection with a channel raises a signal.
void note_asynchronous(Conn& conn, bool on) {
  const table::Lock lock;
  conn.asynchronous = on;
  hot::note_watchers(conn);
}

int set_flags(int fd, long value) {
  const int result = real().fcntl(fd, F_SETFL, value);
  if (result != 0) return result;
  const Use use(fd);
  if (use.channel() != nullptr) {
    use.channel()->end().nonblocking = (value & O_NONBLOCK) != 0 ? 1 : 0;
    if ((value & (O_NONBLOCK | O_ASYNC)) != 0) use.channel()->mirror();
    note_asynchronous(*use.conn(), (value & O_ASYNC) != 0);
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
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
    const int made = real().fcntl(fd, command, value);
    return made < 0 ? made : note_copy(fd, made);
  }
  if (table::kind_of(fd) == Kind::kDirect) return direct::fcntl(fd, command, value);
  if (command == F_SETFL) return set_flags(fd, value);
  return real().fcntl(fd, command, value);
}

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT int close(int fd) {
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kInternal) return fail_with(EBADF);
  if (kind == Kind::kDirect && !borrowing()) return direct::close(fd);
  if (borrowing()) {
    if (kind > Kind::kPlain) note_borrowed(fd, nullptr);
    return real().close(fd);
  }
  if (kind != Kind::kUnknown) table::forget(fd);
  forget_instance(fd);
  return real().close(fd);
}

WEFT_EXPORT int close_range(unsigned first, unsigned last, int flags) {
  if (first > last || (static_cast<unsigned>(flags) & CLOSE_RANGE_UNSHARE) != 0) {
    return real().close_range(first, last, flags);
  }
  return close_each(first, last, flags);
}

WEFT_EXPORT void closefrom(int first) {
  close_each(static_cast<unsigned>(std::max(first, 0)), ~0U, 0);
}

WEFT_EXPORT int dup(int fd) {
  if (table::kind_of(fd) == Kind::kInternal) return fail_with(EBADF);
  const int made = real().dup(fd);
  return made < 0 ? made : note_copy(fd, made);
}

WEFT_EXPORT int dup3(int from, int to, int flags) {
  if (table::kind_of(from) == Kind::kInternal) return fail_with(EBADF);
  if (from == to || to < 0) return real().dup3(from, to, flags);
  return replace(from, to, [=] { return real().dup3(from, to, flags); });
}

WEFT_EXPORT int dup2(int from, int to) {
  if (table::kind_of(from) == Kind::kInternal) return fail_with(EBADF);
  if (from == to || to < 0) return real().dup2(from, to);
  return replace(from, to, [=] { return real().dup2(from, to); });
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
  if (result == 0 && request == FIOASYNC) {
    channel.mirror();
    note_asynchronous(*use.conn(), *static_cast<int*>(argument) != 0);
  }
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
