// Calls that move data.
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>

#include "sockets/checked_reads.h"
#include "sockets/granted/granted.h"

namespace weft::sockets::granted {
namespace {

bool valid(const msghdr* message) {
  return message != nullptr && message->msg_iovlen <= IOV_MAX &&
         (message->msg_iov != nullptr || message->msg_iovlen == 0);
}

}  // namespace
}  // namespace weft::sockets::granted

using namespace weft::sockets;
using namespace weft::sockets::granted;

WEFT_SEEN ssize_t recv(int fd, void* data, size_t length, int flags) {
  const auto plain = [&] { return real().recv(fd, data, length, flags); };
  return serve(fd, Call::kReceives, plain, [&](Lane& lane) {
    const iovec part{data, length};
    return receive(lane, fd, &part, 1, flags, plain);
  });
}

WEFT_SEEN ssize_t recvfrom(int fd, void* __restrict data, size_t length, int flags,
                           __SOCKADDR_ARG from, socklen_t* __restrict from_length) {
  sockaddr* address = from;
  const auto plain = [&] { return real().recvfrom(fd, data, length, flags, address, from_length); };
  return serve(fd, Call::kReceives, plain, [&](Lane& lane) {
    const iovec part{data, length};
    const ssize_t got = receive(lane, fd, &part, 1, flags, plain);
    // As of TCP, which tells no address with its octets.
    if (got >= 0 && address != nullptr && from_length != nullptr) *from_length = 0;
    return got;
  });
}

WEFT_SEEN ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const auto plain = [&] { return real().recvmsg(fd, message, flags); };
  const ssize_t got = serve(fd, Call::kReceives, plain, [&](Lane& lane) {
    if (!valid(message)) return plain();
    bool kernels = false;
    const auto noted = [&] {
      kernels = true;
      return plain();
    };
    const ssize_t n = receive(lane, fd, message->msg_iov, message->msg_iovlen, flags, noted);
    if (n >= 0 && !kernels) {
      message->msg_namelen = 0;
      message->msg_controllen = 0;
      message->msg_flags = 0;
    }
    return n;
  });
  if (got >= 0) note_arrived(*message);
  return got;
}

// The kernel's alone: what lies in the ring comes by TCP soon.
WEFT_SEEN int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  WEFT_NEXT(recvmmsg);
  leave_to_kernel(fd, Why::kCall);
  const int got = next(fd, messages, count, flags, timeout);
  for (int i = 0; i < got; ++i) note_arrived(messages[i].msg_hdr);
  return got;
}

WEFT_SEEN ssize_t read(int fd, void* data, size_t length) {
  const auto plain = [&] { return real().read(fd, data, length); };
  return serve(fd, Call::kReceives, plain, [&](Lane& lane) {
    const iovec part{data, length};
    return length == 0 ? plain() : receive(lane, fd, &part, 1, 0, plain);
  });
}

WEFT_SEEN ssize_t readv(int fd, const iovec* parts, int count) {
  const auto plain = [&] { return real().readv(fd, parts, count); };
  return serve(fd, Call::kReceives, plain, [&](Lane& lane) {
    if (count <= 0 || count > IOV_MAX || parts == nullptr) return plain();
    return receive(lane, fd, parts, static_cast<std::size_t>(count), 0, plain);
  });
}

WEFT_SEEN ssize_t send(int fd, const void* data, size_t length, int flags) {
  const auto plain = [&] { return real().send(fd, data, length, flags); };
  return serve(fd, Call::kSends, plain, [&](Lane& lane) {
    const iovec part{const_cast<void*>(data), length};
    return transmit(lane, fd, &part, 1, flags, plain);
  });
}

WEFT_SEEN ssize_t sendto(int fd, const void* data, size_t length, int flags,
                         __CONST_SOCKADDR_ARG to, socklen_t to_length) {
  const sockaddr* address = to;
  const auto plain = [&] { return real().sendto(fd, data, length, flags, address, to_length); };
  return serve(fd, Call::kSends, plain, [&](Lane& lane) {
    const iovec part{const_cast<void*>(data), length};
    return transmit(lane, fd, &part, 1, address == nullptr ? flags : flags | MSG_OOB, plain);
  });
}

WEFT_SEEN ssize_t write(int fd, const void* data, size_t length) {
  const auto plain = [&] { return real().write(fd, data, length); };
  return serve(fd, Call::kSends, plain, [&](Lane& lane) {
    const iovec part{const_cast<void*>(data), length};
    return transmit(lane, fd, &part, 1, 0, plain);
  });
}

WEFT_SEEN ssize_t writev(int fd, const iovec* parts, int count) {
  const auto plain = [&] { return real().writev(fd, parts, count); };
  return serve(fd, Call::kSends, plain, [&](Lane& lane) {
    if (count <= 0 || count > IOV_MAX || parts == nullptr) return plain();
    return transmit(lane, fd, parts, static_cast<std::size_t>(count), 0, plain);
  });
}

WEFT_SEEN ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  note_passed(message);
  const auto plain = [&] { return real().sendmsg(fd, message, flags); };
  return serve(fd, Call::kSends, plain, [&](Lane& lane) {
    if (!valid(message)) return transmit(lane, fd, nullptr, 0, flags, plain);
    const bool odd = message->msg_controllen != 0 || message->msg_name != nullptr;
    return transmit(lane, fd, message->msg_iov, message->msg_iovlen, odd ? flags | MSG_OOB : flags,
                    plain);
  });
}

WEFT_SEEN int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  WEFT_NEXT(sendmmsg);
  leave_to_kernel(fd, Why::kCall);
  for (unsigned i = 0; i < count && messages != nullptr; ++i) note_passed(&messages[i].msg_hdr);
  return next(fd, messages, count, flags);
}

// Octets of a file.
WEFT_SEEN ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) {
  const auto plain = [&] { return real().sendfile(out, in, offset, count); };
  return serve(out, Call::kSends, plain,
               [&](Lane& lane) { return transmit_file(lane, out, in, offset, count, plain); });
}

WEFT_SEEN ssize_t sendfile(int out, int in, off_t* offset, size_t count) {
  return sendfile64(out, in, offset, count);
}

// These are the kernel's alone.
WEFT_SEEN ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count,
                         unsigned flags) {
  leave_to_kernel(in, Why::kCall);
  leave_to_kernel(out, Why::kCall);
  return real().splice(in, in_offset, out, out_offset, count, flags);
}

WEFT_SEEN ssize_t preadv2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  WEFT_NEXT(preadv2);
  leave_to_kernel(fd, Why::kCall);
  return next(fd, parts, count, offset, flags);
}

WEFT_SEEN ssize_t preadv64v2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  return preadv2(fd, parts, count, offset, flags);
}

WEFT_SEEN ssize_t pwritev2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  WEFT_NEXT(pwritev2);
  leave_to_kernel(fd, Why::kCall);
  return next(fd, parts, count, offset, flags);
}

WEFT_SEEN ssize_t pwritev64v2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  return pwritev2(fd, parts, count, offset, flags);
}

WEFT_SEEN int vdprintf(int fd, const char* format, va_list arguments) {
  WEFT_NEXT(vdprintf);
  leave_to_kernel(fd, Why::kCall);
  return next(fd, format, arguments);
}

WEFT_SEEN int dprintf(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int n = vdprintf(fd, format, arguments);
  va_end(arguments);
  return n;
}
