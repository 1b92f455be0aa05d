// Calls that copy, close and control descriptor numbers; fork.
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "os/guest_output.h"
#include "sockets/iwarp/direct.h"
#include "sockets/iwarp/direct_library.h"
#include "sockets/iwarp/iwarp.h"
#include "sockets/iwarp/iwarp_decide.h"
#include "sockets/iwarp/iwarp_members.h"
#include "sockets/own_memory.h"

namespace weft::sockets::iwarp {
namespace {

__attribute__((constructor)) void begin() {
  static_cast<void>(real());
  static_cast<void>(os::may_say());  // for the first time
  own_memory();
  pthread_atfork(table::before_fork, table::after_fork, [] {
    table::in_child();
    epolls::in_child();
  });
}

// The number is about to be closed. True: it is an rsocket's, which has been.
bool close_number(int fd) {
  if (table::kind_of(fd) == Kind::kDirect) {
    static_cast<void>(direct::close(fd));
    return true;
  }
  table::forget(fd);
  if (epolls::any()) epolls::forget(fd);
  return false;
}

// Everything in [first, last] but Weft's own.
int close_each(unsigned first, unsigned last, int flags) {
  const auto top = static_cast<unsigned>(std::max(table::highest(), 0));
  // Before exec: Weft's own are close-on-exec anyhow.
  if (top <= first || borrowing()) return real().close_range(first, last, flags);
  const bool marks_only = (static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) != 0;
  unsigned from = first;
  for (unsigned fd = first; fd <= last && fd < top; ++fd) {
    if (table::kind_of(static_cast<int>(fd)) == Kind::kInternal) {
      if (fd > from) real().close_range(from, fd - 1, flags);
      from = fd + 1;
    } else if (!marks_only) {
      close_number(static_cast<int>(fd));
    }
  }
  return from <= last ? real().close_range(from, last, flags) : 0;
}

// `to` is about to be replaced. An rsocket there ends, and Weft's own descriptor moves away; false:
// there is no number for it.
bool vacate(int to) {
  if (table::kind_of(to) != Kind::kInternal) {
    close_number(to);
    return true;
  }
  const table::Lock lock;
  int spare = real().fcntl(to, F_DUPFD_CLOEXEC, to + 1);
  if (spare < 0) spare = real().fcntl(to, F_DUPFD_CLOEXEC, 3);
  if (spare < 0) return false;
  epolls::moved(to, spare);
  table::put(spare, Kind::kInternal, nullptr);
  table::put(to, Kind::kOther, nullptr);
  return true;
}

// `made` is the kernel's copy of `fd`: it means the same. -1 with errno, and the copy is closed.
int note_copy(int fd, int made) {
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kDirect && !direct::copy(fd, made)) {
    const int error = errno;
    real().close(made);
    return fail_with(error);
  }
  if (epolls::any()) epolls::copy(fd, made);
  if (kind == Kind::kOther) {
    table::forget(made);
  } else {
    const table::Lock lock;
    table::copy(fd, made);
  }
  return made;
}

// dup2(2) and dup3(2) of different numbers; `call` does it.
template <class Call>
int replace(int from, int to, Call call) {
  if (table::kind_of(from) == Kind::kInternal) return fail_with(EBADF);
  if (!table::in_use() || from == to || to < 0 || borrowing()) return call();
  if (real().fcntl(from, F_GETFD) < 0) return -1;  // as the kernel, before anything is closed
  if (!vacate(to)) return -1;
  const int result = call();
  return result < 0 ? result : note_copy(from, to);
}

int do_fcntl(int fd, int command, long value) {
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
    const int made = real().fcntl(fd, command, value);
    return made < 0 || !table::in_use() || borrowing() ? made : note_copy(fd, made);
  }
  if (table::kind_of(fd) == Kind::kDirect) return direct::fcntl(fd, command, value);
  return real().fcntl(fd, command, value);
}

}  // namespace
}  // namespace weft::sockets::iwarp

using namespace weft::sockets;
using namespace weft::sockets::iwarp;

WEFT_SEEN int close(int fd) {
  if (!table::in_use()) return real().close(fd);
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kInternal) return fail_with(EBADF);
  if (borrowing()) return real().close(fd);
  if (kind == Kind::kDirect) return direct::close(fd);
  close_number(fd);
  return real().close(fd);
}

WEFT_SEEN int close_range(unsigned first, unsigned last, int flags) {
  if (first > last || (static_cast<unsigned>(flags) & CLOSE_RANGE_UNSHARE) != 0) {
    return real().close_range(first, last, flags);
  }
  return close_each(first, last, flags);
}

WEFT_SEEN void closefrom(int first) {
  if (table::highest() <= first) return real().closefrom(first);
  close_each(static_cast<unsigned>(std::max(first, 0)), ~0U, 0);
}

WEFT_SEEN int dup(int fd) {
  if (table::kind_of(fd) == Kind::kInternal) return fail_with(EBADF);
  const int made = real().dup(fd);
  return made < 0 || !table::in_use() || borrowing() ? made : note_copy(fd, made);
}

WEFT_SEEN int dup3(int from, int to, int flags) {
  return replace(from, to, [=] { return real().dup3(from, to, flags); });
}

WEFT_SEEN int dup2(int from, int to) {
  return replace(from, to, [=] { return real().dup2(from, to); });
}

WEFT_SEEN int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  return do_fcntl(fd, command, value);
}

WEFT_SEEN int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  return do_fcntl(fd, command, value);
}

WEFT_SEEN int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == FIONREAD) static_cast<void>(resolve(fd, false));
  if (request == FIONBIO && table::kind_of(fd) == Kind::kDirect && argument != nullptr) {
    return direct::fcntl(fd, F_SETFL, *static_cast<int*>(argument) != 0 ? O_NONBLOCK : 0);
  }
  return real().ioctl(fd, request, argument);
}
