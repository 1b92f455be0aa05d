#include "verbs/oob/calling.h"

#include <sys/epoll.h>

#include <optional>
#include <utility>

#include "io/socket.h"

namespace weft::verbs {

Status Calling::call(const Config& config, const SocketAddress& from, const SocketAddress& to,
                     const std::weak_ptr<io::Handler>& handler) {
  drop_one(beside_);
  auto socket = io::open_socket(from.family());
  if (!socket) return fail(socket.error());
  // The peer checks that we call from the address behind our GID.
  if (auto bound = io::bind_socket(socket->get(), from, false, false); !bound) return bound;
  io::tune_before_connect(socket->get(), config);
  if (auto begun = io::begin_connect(socket->get(), to); !begun) return begun;
  if (!engine_.add(socket->get(), EPOLLOUT, handler)) return fail(Error::kLimitExceeded);
  (first_ ? beside_ : first_) = std::move(*socket);
  return {};
}

Result<os::Fd> Calling::take_connected() {
  std::optional<Error> refused;
  for (os::Fd* one : {&first_, &beside_}) {
    if (!*one || !io::is_connect_over(one->get())) continue;
    if (auto connected = io::take_error(one->get()); !connected) {
      refused = connected.error();
      drop_one(*one);
      continue;
    }
    os::Fd out = std::move(*one);
    drop();
    return out;
  }
  if (refused && !any()) return fail(*refused);
  return os::Fd();
}

void Calling::drop() {
  drop_one(first_);
  drop_one(beside_);
}

void Calling::drop_one(os::Fd& one) {
  if (one) engine_.forget(one.get());
  one.reset();
}

}  // namespace weft::verbs
