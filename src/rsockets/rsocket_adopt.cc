// Calls for libweft-sockets-iwarp.so in IWARP mode (<weft/sockets.h>): an ordinary TCP socket of
// the program becomes an rsocket under its own number. Not part of rdma-core's interface.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "ibverbs/errors.h"
#include "rdmacm/forward.h"
#include "rsockets/rs_thrown.h"
#include "rsockets/rsocket.h"

namespace weft::rsockets {
namespace {

constexpr std::uint32_t kIomaps = 128;  // ranges that the peer may offer
// The size of each ring. rdma-core's 128 KiB, offered in halves, make a sender of large pieces wait
// for each.
constexpr std::uint32_t kRingBytes = 1U << 20U;

// Null with errno.
RsocketPtr enter(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) return nullptr;
  const RsocketPtr made = enter_rsocket(fd, domain, SOCK_STREAM);
  if (made == nullptr) return nullptr;
  made->nonblocking = (flags & O_NONBLOCK) != 0;
  take_over_options(*made);
  made->options.iomap_count = round_iomap_count(kIomaps);
  made->options.send_bytes = std::max(made->options.send_bytes, kRingBytes);
  made->options.recv_bytes = std::max(made->options.recv_bytes, kRingBytes);
  return made;
}

}  // namespace
}  // namespace weft::rsockets

using namespace weft::rsockets;
using weft::ibverbs::fail_minus;

extern "C" {

// A socket that is not connected: from now on the r* calls serve it.
//   EOPNOTSUPP: another librdmacm serves this process
int weft_rsocket_adopt(int fd) try {
  if (weft::rdmacm::real_cm() != nullptr) return fail_minus(EOPNOTSUPP);
  return enter(fd) == nullptr ? -1 : 0;
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

// An accepted connection whose client has sent an MPA Request: it is answered while the program
// goes on, so that a client which is slow about it delays no other. -1 with errno: the connection
// has ended.
int weft_rsocket_answer(int fd) try {
  if (weft::rdmacm::real_cm() != nullptr) return fail_minus(EOPNOTSUPP);
  const RsocketPtr made = enter(fd);
  if (made == nullptr) return -1;
  if (start_answering(made)) return 0;
  const int error = errno;
  leave_rsocket(fd);
  return fail_minus(error);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

// `to` is a copy of the descriptor `from`: it names the same rsocket. rclose() of the last ends it.
int weft_rsocket_alias(int from, int to) try {
  return alias_rsocket(from, to) ? 0 : -1;
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

}  // extern "C"
