// Octets of a file, as sendfile(2) sends them.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "sockets/granted/lane_calls.h"
#include "sockets/real_calls.h"

namespace weft::sockets::granted {
namespace {

// On the stack: no memory may be had here.
constexpr std::size_t kPiece = 4096;
// A large file is faster by the kernel, which does not copy it.
constexpr std::size_t kMost = 65536;

// How many octets a regular file has from `offset` on. None: it is another file, or tells no size.
std::uint64_t octets_of(int fd, off64_t offset) {
  struct stat about {};
  const bool regular = ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  return regular && offset >= 0 && about.st_size > offset
             ? static_cast<std::uint64_t>(about.st_size - offset)
             : 0;
}

}  // namespace

ssize_t transmit_file(Lane& lane, int out, int in, off64_t* offset, std::size_t count,
                      AsAsked as_asked) {
  // Without an offset of its own the call moves the file's position, which others may share.
  const bool few = offset != nullptr && count != 0 && count <= kMost;
  // The last piece has to be known as such: TCP holds what more is to come behind.
  if (few && may_send_by_ring(lane, out))
    count = std::min(count, octets_of(in, *offset));
  else
    count = 0;
  if (count == 0) return transmit(lane, out, nullptr, 0, 0, as_asked);
  std::array<std::uint8_t, kPiece> piece;
  std::size_t done = 0;
  while (done < count) {
    const std::size_t wanted = std::min(count - done, piece.size());
    // Not by the C library: a thread that is cancelled must not end between two pieces.
    const long got = real().syscall(SYS_pread64, in, piece.data(), wanted, *offset);
    if (got < 0 && done == 0) return transmit(lane, out, nullptr, 0, 0, as_asked);  // it says how
    if (got <= 0) break;
    const auto bytes = static_cast<std::size_t>(got);
    const int more = done + bytes < count ? MSG_MORE : 0;
    const iovec part{piece.data(), bytes};
    const ssize_t sent = transmit(lane, out, &part, 1, more,
                                  [&] { return real().send(out, piece.data(), bytes, more); });
    if (sent < 0 && done == 0) return -1;
    if (sent <= 0) break;
    *offset += sent;
    done += static_cast<std::size_t>(sent);
    if (static_cast<std::size_t>(sent) < bytes) break;
  }
  return static_cast<ssize_t>(done);
}

}  // namespace weft::sockets::granted
