// Calls that send and calls that receive by a lane have this in common.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "sockets/grant/grant_words.h"

namespace weft::sockets::granted {

// Few: the stack may be a signal handler's.
using Parts = std::array<iovec, 16>;

// The parts of a call behind its first `done` octets, as far as they fit. How many parts.
inline std::size_t rest_of(const iovec* parts, std::size_t count, std::uint64_t done, Parts& out) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < count && n < out.size(); ++i) {
    if (done >= parts[i].iov_len) {
      done -= parts[i].iov_len;
      continue;
    }
    out.at(n++) = {static_cast<std::uint8_t*>(parts[i].iov_base) + done, parts[i].iov_len - done};
    done = 0;
  }
  return n;
}

inline std::uint64_t bytes_of(const iovec* parts, std::size_t count) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

// `call` with a message of what is behind the first `done` octets, or as much of it as fits.
template <class Call>
ssize_t with_rest(const iovec* parts, std::size_t count, std::uint64_t done, Call call) {
  Parts rest;
  msghdr message{};
  message.msg_iov = rest.data();
  message.msg_iovlen = rest_of(parts, count, done, rest);
  return call(message);
}

// Whether what the kernel said is no end: a later call may get octets.
inline bool passing(int error) {
  return error == EAGAIN || error == EINTR || error == EFAULT || error == ENOMEM ||
         error == ENOBUFS || error == EINVAL;
}

// The answer of a system call to a machine; what is wrong in `error`.
inline std::int64_t told(ssize_t result, int& error) {
  if (result >= 0) return result;
  error = errno;
  return passing(error) ? kGrantWouldBlock : kGrantError;
}

}  // namespace weft::sockets::granted
