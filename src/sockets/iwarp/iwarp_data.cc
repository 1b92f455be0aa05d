// Calls that move data. A number that is nothing of ours costs one look into the table.
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "os/clock.h"
#include "sockets/checked_reads.h"
#include "sockets/iwarp/direct_library.h"
#include "sockets/iwarp/iwarp.h"
#include "sockets/iwarp/iwarp_decide.h"
#include "sockets/passed_numbers.h"

namespace weft::sockets::iwarp {
namespace {

// Calls `call` with the functions that serve a number, after what can be decided now has been.
template <class Call>
ssize_t serve(int fd, bool to_write, int flags, Call call) {
  Kind kind = table::kind_of(fd);
  while (kind == Kind::kUndecided) {
    kind = resolve(fd, to_write);
    if (to_write) break;
    if (kind == Kind::kUndecided && !await_opening(fd, (flags & MSG_DONTWAIT) == 0)) return -1;
  }
  return call(kind == Kind::kDirect ? direct::calls() : real());
}

// sendfile(2) through memory: `send` takes a buffer and its length, and returns as send(2). From a
// file that has positions only, as the kernel: what was read of a pipe could not be put back.
template <class Send>
ssize_t send_file(int in, off64_t* offset, size_t count, Send send) {
  char buffer[8192];  // the stack may be small
  if (lseek64(in, 0, SEEK_CUR) < 0)
    return fail_with(errno == ESPIPE && offset == nullptr ? EINVAL : errno);
  size_t done = 0;
  while (done < count) {
    const size_t most = std::min(count - done, sizeof buffer);
    const off64_t at = offset != nullptr ? *offset : lseek64(in, 0, SEEK_CUR);
    const ssize_t got = pread64(in, buffer, most, at);
    if (got <= 0) return done > 0 || got == 0 ? static_cast<ssize_t>(done) : -1;
    const ssize_t sent = send(buffer, static_cast<size_t>(got));
    if (sent < 0) return done > 0 ? static_cast<ssize_t>(done) : -1;
    if (offset != nullptr) {
      *offset += sent;
    } else {
      lseek64(in, at + sent, SEEK_SET);
    }
    done += static_cast<size_t>(sent);
    if (sent < got) break;
  }
  return static_cast<ssize_t>(done);
}

}  // namespace
}  // namespace weft::sockets::iwarp

using namespace weft::sockets;
using namespace weft::sockets::iwarp;

WEFT_SEEN ssize_t recv(int fd, void* data, size_t length, int flags) {
  return serve(fd, false, flags,
               [&](const RealCalls& serving) { return serving.recv(fd, data, length, flags); });
}

WEFT_SEEN ssize_t recvfrom(int fd, void* __restrict data, size_t length, int flags,
                           __SOCKADDR_ARG from, socklen_t* __restrict from_length) {
  sockaddr* address = from;
  return serve(fd, false, flags, [&](const RealCalls& serving) {
    return serving.recvfrom(fd, data, length, flags, address, from_length);
  });
}

WEFT_SEEN ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t got = serve(fd, false, flags, [&](const RealCalls& serving) {
    return serving.recvmsg(fd, message, flags);
  });
  if (got >= 0) each_passed(*message, table::forget);
  return got;
}

WEFT_SEEN int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const bool waits = (flags & MSG_DONTWAIT) == 0;
  while (resolve(fd, false) == Kind::kUndecided) {
    if (!await_opening(fd, waits)) return -1;
  }
  if (table::kind_of(fd) != Kind::kDirect) {
    static const auto next = reinterpret_cast<decltype(&recvmmsg)>(real_symbol("recvmmsg"));
    const int got = next(fd, messages, count, flags, timeout);
    for (int i = 0; i < got; ++i) each_passed(messages[i].msg_hdr, table::forget);
    return got;
  }
  const std::int64_t end =
      timeout == nullptr ? 0 : weft::os::monotonic_ns() + weft::os::ns_of(*timeout);
  const bool one_is_enough = (flags & MSG_WAITFORONE) != 0;
  flags &= ~MSG_WAITFORONE;
  unsigned done = 0;
  while (done < count) {
    const ssize_t n = recvmsg(fd, &messages[done].msg_hdr, flags);
    if (n < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done++].msg_len = static_cast<unsigned>(n);
    if (one_is_enough) flags |= MSG_DONTWAIT;
    // As the kernel: looked at between messages only.
    if (timeout != nullptr && weft::os::monotonic_ns() >= end) break;
  }
  return static_cast<int>(done);
}

WEFT_SEEN ssize_t read(int fd, void* data, size_t length) {
  return serve(fd, false, 0,
               [&](const RealCalls& serving) { return serving.read(fd, data, length); });
}

WEFT_SEEN ssize_t readv(int fd, const iovec* parts, int count) {
  return serve(fd, false, 0,
               [&](const RealCalls& serving) { return serving.readv(fd, parts, count); });
}

WEFT_SEEN ssize_t send(int fd, const void* data, size_t length, int flags) {
  return serve(fd, true, flags,
               [&](const RealCalls& serving) { return serving.send(fd, data, length, flags); });
}

WEFT_SEEN ssize_t sendto(int fd, const void* data, size_t length, int flags,
                         __CONST_SOCKADDR_ARG to, socklen_t to_length) {
  const sockaddr* address = to;
  return serve(fd, true, flags, [&](const RealCalls& serving) {
    return serving.sendto(fd, data, length, flags, address, to_length);
  });
}

WEFT_SEEN ssize_t write(int fd, const void* data, size_t length) {
  return serve(fd, true, 0,
               [&](const RealCalls& serving) { return serving.write(fd, data, length); });
}

WEFT_SEEN ssize_t writev(int fd, const iovec* parts, int count) {
  return serve(fd, true, 0,
               [&](const RealCalls& serving) { return serving.writev(fd, parts, count); });
}

WEFT_SEEN ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return serve(fd, true, flags,
               [&](const RealCalls& serving) { return serving.sendmsg(fd, message, flags); });
}

WEFT_SEEN int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  if (resolve(fd, true) != Kind::kDirect) {
    static const auto next = reinterpret_cast<decltype(&sendmmsg)>(real_symbol("sendmmsg"));
    return next(fd, messages, count, flags);
  }
  unsigned done = 0;
  for (; done < count; ++done) {
    const ssize_t n = sendmsg(fd, &messages[done].msg_hdr, flags);
    if (n < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done].msg_len = static_cast<unsigned>(n);
  }
  return static_cast<int>(done);
}

WEFT_SEEN ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) {
  return serve(out, true, 0, [&](const RealCalls& serving) {
    if (&serving == &real()) return serving.sendfile(out, in, offset, count);
    return send_file(in, offset, count, [&](const char* data, size_t length) {
      return serving.send(out, data, length, 0);
    });
  });
}

WEFT_SEEN ssize_t sendfile(int out, int in, off_t* offset, size_t count) {
  return sendfile64(out, in, offset, count);
}

// The kernel's socket below an rsocket carries RDMA's octets: no call may put others among them.
WEFT_SEEN ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count,
                         unsigned flags) {
  if (resolve(in, false) == Kind::kDirect || resolve(out, true) == Kind::kDirect) {
    return fail_with(EINVAL);  // "does not support splicing"
  }
  return real().splice(in, in_offset, out, out_offset, count, flags);
}

WEFT_SEEN ssize_t preadv2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  if (table::in_use() && resolve(fd, false) == Kind::kDirect) {
    if (offset != -1) return fail_with(ESPIPE);
    return flags != 0 ? fail_with(EOPNOTSUPP) : readv(fd, parts, count);
  }
  static const auto next = reinterpret_cast<decltype(&preadv2)>(real_symbol("preadv2"));
  return next(fd, parts, count, offset, flags);
}

WEFT_SEEN ssize_t preadv64v2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  return preadv2(fd, parts, count, offset, flags);
}

WEFT_SEEN ssize_t pwritev2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  if (table::in_use() && resolve(fd, true) == Kind::kDirect) {
    if (offset != -1) return fail_with(ESPIPE);
    return flags != 0 ? fail_with(EOPNOTSUPP) : writev(fd, parts, count);
  }
  static const auto next = reinterpret_cast<decltype(&pwritev2)>(real_symbol("pwritev2"));
  return next(fd, parts, count, offset, flags);
}

WEFT_SEEN ssize_t pwritev64v2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  return pwritev2(fd, parts, count, offset, flags);
}

WEFT_SEEN int vdprintf(int fd, const char* format, va_list arguments) {
  static const auto next = reinterpret_cast<decltype(&vdprintf)>(real_symbol("vdprintf"));
  if (!table::in_use() || resolve(fd, true) != Kind::kDirect) return next(fd, format, arguments);
  char* text = nullptr;
  const int length = vasprintf(&text, format, arguments);
  int done = 0;
  while (done < length) {
    const ssize_t n = write(fd, text + done, static_cast<size_t>(length - done));
    if (n <= 0) break;
    done += static_cast<int>(n);
  }
  free(text);
  return done == length ? length : -1;
}

WEFT_SEEN int dprintf(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int n = vdprintf(fd, format, arguments);
  va_end(arguments);
  return n;
}
