#include "sockets/granted/nodelay_for_ring.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cassert>

#include "sockets/real_calls.h"

namespace weft::sockets::granted {
namespace {

void set(int fd, int on) { real().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); }

}  // namespace

void NodelayForRing::turn_on(int fd) {
  int on = 0;
  socklen_t length = sizeof on;
  // First, so that another thread which sets the option from now on says so.
  is_ours_ = true;
  real().getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &length);
  Program unknown = Program::kUnknown;
  program_.compare_exchange_strong(unknown, on != 0 ? Program::kOn : Program::kOff);
  set(fd, 1);
}

void NodelayForRing::give_back(int fd) const {
  if (is_ours_.load() && program_.load() == Program::kOff) set(fd, 0);
}

void NodelayForRing::note_set(int fd, bool on) {
  assert(is_ours());
  program_ = on ? Program::kOn : Program::kOff;
  set(fd, 1);
}

}  // namespace weft::sockets::granted
