#include "sockets/iwarp/syn_mark.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstdint>

#include "sockets/real_calls.h"

namespace weft::sockets::iwarp {
namespace {

constexpr int kSynMark = 0x2c;

}  // namespace

bool syn_was_marked(int fd) {
  std::uint8_t syn[256];
  socklen_t length = sizeof syn;
  if (real().getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &length) != 0 || length < 2) {
    return false;
  }
  const unsigned tos = syn[0] >> 4U == 4 ? syn[1] : ((syn[0] & 0xfU) << 4U | syn[1] >> 4U);
  return (tos & 0xfcU) == (kSynMark & 0xfcU);
}

void save_syns(int listener) {
  const int one = 1;
  real().setsockopt(listener, IPPROTO_TCP, TCP_SAVE_SYN, &one, sizeof one);
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

}  // namespace weft::sockets::iwarp
