#include "sockets/preload/preload_passed.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "sockets/preload/preload_decide.h"
#include "sockets/preload/preload_relay.h"
#include "sockets/real_calls.h"

namespace weft::sockets {

PassedOn::PassedOn(const msghdr* message) : given_(message) {
  if (message == nullptr || message->msg_control == nullptr || message->msg_controllen == 0 ||
      message->msg_controllen > sizeof control_) {
    return;
  }
  std::memcpy(control_, message->msg_control, message->msg_controllen);
  copy_ = *message;
  copy_.msg_control = control_;
  for (cmsghdr* c = CMSG_FIRSTHDR(&copy_); c != nullptr; c = CMSG_NXTHDR(&copy_, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    auto* fds = reinterpret_cast<int*>(CMSG_DATA(c));
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count && made_count_ < kMost; ++i) {
      static_cast<void>(resolve(fds[i], true));
      const Use use(fds[i]);
      if (use.channel() == nullptr) continue;
      const int made = relayed_copy(use.channel(), use.channel()->socket(), RelayStart::kNow);
      if (made < 0) {
        ready_ = false;
        return;
      }
      if (use.channel()->end().nonblocking.load() != 0) {
        real().fcntl(made, F_SETFL, O_RDWR | O_NONBLOCK);
      }
      fds[i] = made_[made_count_++] = made;
      changed_ = true;
    }
  }
}

PassedOn::~PassedOn() {
  const int error = errno;
  for (int i = 0; i < made_count_; ++i) real().close(made_[i]);
  errno = error;
}

}  // namespace weft::sockets
