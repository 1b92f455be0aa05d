// The data calls of the preload library. A plain descriptor costs one look into the table.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <ctime>

#include "os/clock.h"
#include "sockets/preload/direct_library.h"
#include "sockets/preload/preload.h"
#include "sockets/preload/preload_decide.h"
#include "sockets/preload/preload_hot.h"
#include "sockets/preload/preload_passed.h"

namespace weft::sockets {
namespace {

// Calls `ours` with the channel behind a number, after what can be decided now has been; `plain`
// with the calls that serve it where there is none.
template <class Plain, class Ours>
ssize_t serve(int fd, bool to_write, int flags, Plain plain, Ours ours) {
  Kind kind = table::kind_of(fd);
  if (kind <= Kind::kPlain) {
    if (kind == Kind::kPlain) return plain(real());
    kind = classify(fd);
  }
  while (kind == Kind::kUndecided || kind == Kind::kConnecting) {
    kind = resolve(fd, to_write);
    if (kind == Kind::kConnecting || to_write) break;
    if (kind == Kind::kUndecided && !await_opening(fd, (flags & MSG_DONTWAIT) == 0)) return -1;
  }
  if (kind == Kind::kDirect) return plain(direct::calls());
  const Use use(fd);
  if (use.channel() == nullptr) return plain(real());
  return ours(*use.channel());
}

ssize_t receive(Channel& channel, const iovec* parts, std::size_t count, int flags) {
  if ((flags & MSG_OOB) != 0) return fail_with(EINVAL);
  if ((flags & MSG_ERRQUEUE) != 0) return fail_with(EAGAIN);
  const bool wait = blocks(channel, flags);
  if (!hot::looks_after(channel, wait)) return channel.receive(parts, count, flags, wait);
  const ssize_t got = channel.receive(parts, count, flags, wait, true);
  hot::note_read(channel, got);
  return got;
}

// As recv(2): of no octets it waits for some all the same, where read(2) comes back.
ssize_t receive_message(Channel& channel, const iovec* parts, std::size_t count, int flags) {
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len != 0) return receive(channel, parts, count, flags);
  }
  std::uint8_t octet = 0;
  const iovec one{&octet, 1};
  return std::min<ssize_t>(receive(channel, &one, 1, flags | MSG_PEEK), 0);
}

ssize_t transmit(Channel& channel, const iovec* parts, std::size_t count, int flags) {
  // Urgent data has no place in an RDMA stream; rsockets send it in line without a word.
  if ((flags & MSG_OOB) != 0) return fail_with(EOPNOTSUPP);
  const ssize_t n = channel.transmit(parts, count, blocks(channel, flags));
  if (n < 0 && errno == EPIPE && (flags & MSG_NOSIGNAL) == 0) {
    raise(SIGPIPE);
    errno = EPIPE;
  }
  return n;
}

// sendfile(2) through memory: `send` takes a buffer and its length, and returns as send(2).
template <class Send>
ssize_t send_file(int in, off64_t* offset, size_t count, Send send) {
  char buffer[65536];
  size_t done = 0;
  while (done < count) {
    const size_t most = std::min(count - done, sizeof buffer);
    const off64_t at = offset != nullptr ? *offset : lseek64(in, 0, SEEK_CUR);
    const ssize_t got = at < 0 ? real().read(in, buffer, most) : pread64(in, buffer, most, at);
    if (got <= 0) return done > 0 || got == 0 ? static_cast<ssize_t>(done) : -1;
    const ssize_t sent = send(buffer, static_cast<size_t>(got));
    if (sent < 0) return done > 0 ? static_cast<ssize_t>(done) : -1;
    if (offset != nullptr) {
      *offset += sent;
    } else if (at >= 0) {
      lseek64(in, at + sent, SEEK_SET);
    }
    done += static_cast<size_t>(sent);
    if (sent < got) break;
  }
  return static_cast<ssize_t>(done);
}

bool served_here(int fd) {
  const Kind kind = table::kind_of(fd);
  return kind == Kind::kChannel || kind == Kind::kDirect;
}

// Numbers that came with a message mean something new.
void forget_received(const msghdr& message) {
  if (message.msg_controllen == 0) return;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const auto* fds = reinterpret_cast<const int*>(CMSG_DATA(c));
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) table::forget(fds[i]);
  }
}

bool valid(const msghdr* message) { return message != nullptr && message->msg_iovlen <= IOV_MAX; }

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT ssize_t recv(int fd, void* data, size_t length, int flags) {
  return serve(
      fd, false, flags,
      [&](const RealCalls& serving) { return serving.recv(fd, data, length, flags); },
      [&](Channel& channel) {
        const iovec part{data, length};
        return receive_message(channel, &part, 1, flags);
      });
}

WEFT_EXPORT ssize_t recvfrom(int fd, void* __restrict data, size_t length, int flags,
                             __SOCKADDR_ARG from, socklen_t* __restrict from_length) {
  sockaddr* address = from;
  return serve(
      fd, false, flags,
      [&](const RealCalls& serving) {
        return serving.recvfrom(fd, data, length, flags, address, from_length);
      },
      [&](Channel& channel) {
        const iovec part{data, length};
        const ssize_t n = receive_message(channel, &part, 1, flags);
        if (n >= 0 && address != nullptr && from_length != nullptr) *from_length = 0;
        return n;
      });
}

WEFT_EXPORT ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t n = serve(
      fd, false, flags,
      [&](const RealCalls& serving) { return serving.recvmsg(fd, message, flags); },
      [&](Channel& channel) -> ssize_t {
        if (!valid(message)) return fail_with(EMSGSIZE);
        const ssize_t got = receive_message(channel, message->msg_iov, message->msg_iovlen, flags);
        if (got >= 0) {
          message->msg_namelen = 0;
          message->msg_controllen = 0;
          message->msg_flags = 0;
        }
        return got;
      });
  if (n >= 0 && message != nullptr) forget_received(*message);
  return n;
}

WEFT_EXPORT int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  if (!served_here(fd)) {
    static const auto next = reinterpret_cast<decltype(&recvmmsg)>(real_symbol("recvmmsg"));
    const int got = next(fd, messages, count, flags, timeout);
    for (int i = 0; i < got; ++i) forget_received(messages[i].msg_hdr);
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

WEFT_EXPORT ssize_t read(int fd, void* data, size_t length) {
  return serve(
      fd, false, 0, [&](const RealCalls& serving) { return serving.read(fd, data, length); },
      [&](Channel& channel) {
        const iovec part{data, length};
        return receive(channel, &part, 1, 0);
      });
}

WEFT_EXPORT ssize_t readv(int fd, const iovec* parts, int count) {
  return serve(
      fd, false, 0, [&](const RealCalls& serving) { return serving.readv(fd, parts, count); },
      [&](Channel& channel) -> ssize_t {
        if (count < 0 || count > IOV_MAX) return fail_with(EINVAL);
        return receive(channel, parts, static_cast<std::size_t>(count), 0);
      });
}

WEFT_EXPORT ssize_t send(int fd, const void* data, size_t length, int flags) {
  return serve(
      fd, true, flags,
      [&](const RealCalls& serving) { return serving.send(fd, data, length, flags); },
      [&](Channel& channel) {
        const iovec part{const_cast<void*>(data), length};
        return transmit(channel, &part, 1, flags);
      });
}

WEFT_EXPORT ssize_t sendto(int fd, const void* data, size_t length, int flags,
                           __CONST_SOCKADDR_ARG to, socklen_t to_length) {
  const sockaddr* address = to;
  return serve(
      fd, true, flags,
      [&](const RealCalls& serving) {
        return serving.sendto(fd, data, length, flags, address, to_length);
      },
      [&](Channel& channel) {
        const iovec part{const_cast<void*>(data), length};
        return transmit(channel, &part, 1, flags);
      });
}

WEFT_EXPORT ssize_t write(int fd, const void* data, size_t length) {
  return serve(
      fd, true, 0, [&](const RealCalls& serving) { return serving.write(fd, data, length); },
      [&](Channel& channel) {
        const iovec part{const_cast<void*>(data), length};
        return transmit(channel, &part, 1, 0);
      });
}

WEFT_EXPORT ssize_t writev(int fd, const iovec* parts, int count) {
  return serve(
      fd, true, 0, [&](const RealCalls& serving) { return serving.writev(fd, parts, count); },
      [&](Channel& channel) -> ssize_t {
        if (count < 0 || count > IOV_MAX) return fail_with(EINVAL);
        return transmit(channel, parts, static_cast<std::size_t>(count), 0);
      });
}

// Descriptors that go along are made fit for a holder of any kind first.
WEFT_EXPORT ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  PassedOn passed(message);
  if (!passed.ready()) return -1;
  return serve(
      fd, true, flags,
      [&](const RealCalls& serving) { return serving.sendmsg(fd, passed.message(), flags); },
      [&](Channel& channel) -> ssize_t {
        if (!valid(message)) return fail_with(EMSGSIZE);
        return transmit(channel, message->msg_iov, message->msg_iovlen, flags);
      });
}

WEFT_EXPORT int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  const bool passes_on =
      std::any_of(messages, messages + (messages == nullptr ? 0 : count),
                  [](const mmsghdr& one) { return one.msg_hdr.msg_controllen != 0; });
  if (!served_here(fd) && !passes_on) {
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

WEFT_EXPORT ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) {
  return serve(
      out, true, 0,
      [&](const RealCalls& serving) {
        if (&serving == &real()) return serving.sendfile(out, in, offset, count);
        return send_file(in, offset, count, [&](const char* data, size_t length) {
          return serving.send(out, data, length, 0);
        });
      },
      [&](Channel& channel) {
        return send_file(in, offset, count, [&](char* data, size_t length) {
          const iovec part{data, length};
          return transmit(channel, &part, 1, 0);
        });
      });
}

WEFT_EXPORT ssize_t sendfile(int out, int in, off_t* offset, size_t count) {
  return sendfile64(out, in, offset, count);
}

// Through memory: what the pipe takes is what leaves the channel, and the other way about.
WEFT_EXPORT ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count,
                           unsigned flags) {
  const int wait = (flags & SPLICE_F_NONBLOCK) != 0 ? MSG_DONTWAIT : 0;
  char buffer[65536];
  const size_t most = std::min(count, sizeof buffer);
  if (table::kind_of(in) == Kind::kChannel) {
    const ssize_t got = recv(in, buffer, most, MSG_PEEK | wait);
    if (got <= 0) return got;
    const ssize_t put = real().write(out, buffer, static_cast<size_t>(got));
    return put <= 0 ? put : recv(in, buffer, static_cast<size_t>(put), 0);
  }
  if (table::kind_of(out) == Kind::kChannel) {
    const Use use(out);
    if (use.channel() != nullptr) {
      // Only as much as there is room for: what has left the pipe can't go back.
      const size_t room = use.channel()->room();
      if (room == 0) {
        if (wait != 0 || use.channel()->end().nonblocking.load() != 0) return fail_with(EAGAIN);
      }
      const ssize_t got = real().read(in, buffer, room == 0 ? 1 : std::min(most, room));
      if (got <= 0) return got;
      const iovec part{buffer, static_cast<size_t>(got)};
      return transmit(*use.channel(), &part, 1, MSG_NOSIGNAL);
    }
  }
  return real().splice(in, in_offset, out, out_offset, count, flags);
}

WEFT_EXPORT ssize_t __read_chk(int fd, void* data, size_t length, size_t room) {
  if (length > room) abort();
  return read(fd, data, length);
}

WEFT_EXPORT ssize_t __recv_chk(int fd, void* data, size_t length, size_t room, int flags) {
  if (length > room) abort();
  return recv(fd, data, length, flags);
}

WEFT_EXPORT ssize_t __recvfrom_chk(int fd, void* __restrict data, size_t length, size_t room,
                                   int flags, __SOCKADDR_ARG from,
                                   socklen_t* __restrict from_length) {
  if (length > room) abort();
  return recvfrom(fd, data, length, flags, from, from_length);
}
