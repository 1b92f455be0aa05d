#include "sockets/preload/syn_mark.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "sockets/preload/preload.h"

namespace weft::sockets {
namespace {

constexpr int kSynMark = 0x2c;

}  // namespace

void mark_syn(int fd, Conn& conn, int family) {
  const int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
  const int name = family == AF_INET ? IP_TOS : IPV6_TCLASS;
  int before = 0;
  socklen_t length = sizeof before;
  if (real().getsockopt(fd, level, name, &before, &length) != 0) return;
  conn.tos_before = before;
  real().setsockopt(fd, level, name, &kSynMark, sizeof kSynMark);
}

void unmark_syn(int fd, Conn& conn) {
  if (conn.tos_before < 0) return;
  const bool v4 = conn.peer.ss_family == AF_INET;
  real().setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS, &conn.tos_before,
                    sizeof conn.tos_before);
  conn.tos_before = -1;
}

bool syn_was_marked(int fd) {
  std::uint8_t syn[256];
  socklen_t length = sizeof syn;
  if (real().getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &length) != 0 || length < 2) {
    return false;
  }
  const unsigned tos = syn[0] >> 4U == 4 ? syn[1] : ((syn[0] & 0xfU) << 4U | syn[1] >> 4U);
  return (tos & 0xfcU) == (kSynMark & 0xfcU);
}

TosMark::TosMark(int fd, int family)
    : fd_(fd),
      level_(family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6),
      name_(family == AF_INET ? IP_TOS : IPV6_TCLASS) {
  socklen_t length = sizeof before_;
  set_ = real().getsockopt(fd_, level_, name_, &before_, &length) == 0 &&
         real().setsockopt(fd_, level_, name_, &kSynMark, sizeof kSynMark) == 0;
  waits_ = (real().fcntl(fd_, F_GETFL) & O_NONBLOCK) == 0;
}

TosMark::~TosMark() {
  const int error = errno;
  if (set_ && waits_) real().setsockopt(fd_, level_, name_, &before_, sizeof before_);
  errno = error;
}

}  // namespace weft::sockets
