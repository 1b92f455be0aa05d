// Descriptor numbers that a message carries (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>

#include <cstddef>

namespace weft::sockets {

// Calls `visit` for each of them.
template <class Visit>
void each_passed(const msghdr& message, Visit visit) {
  if (message.msg_control == nullptr || message.msg_controllen < sizeof(cmsghdr)) return;
  auto& m = const_cast<msghdr&>(message);
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    if (c->cmsg_len < CMSG_LEN(0)) continue;
    const auto* fds = reinterpret_cast<const int*>(CMSG_DATA(c));
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) visit(fds[i]);
  }
}

}  // namespace weft::sockets
