#include "files/server/status_port.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "os/abstract_address.h"

namespace weft::files {
namespace {

constexpr int kCallersWaiting = 8;
constexpr int kPatienceMs = 10000;
constexpr std::size_t kTextMax = 100000;  // fits into the send buffer of a Unix socket

os::AbstractAddress name_of(std::uint16_t port) {
  return os::AbstractAddress("weft-serve-" + std::to_string(port));
}

std::optional<uid_t> user_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

}  // namespace

Outcome<StatusPort> StatusPort::open(std::uint16_t port) {
  StatusPort out;
  out.listener_ = os::Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const os::AbstractAddress name = name_of(port);
  if (!out.listener_ || bind(out.fd(), name.get(), name.size()) != 0 ||
      ::listen(out.fd(), kCallersWaiting) != 0) {
    return failed(errno, "weft serve --status has no name to ask at");
  }
  return out;
}

void StatusPort::answer(const std::function<std::string()>& text) const {
  for (;;) {
    const os::Fd caller(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!caller) return;
    const auto user = user_of(caller.get());
    if (!user || (*user != geteuid() && *user != 0)) continue;
    std::string all = text();
    all.resize(std::min(all.size(), kTextMax));
    static_cast<void>(!send(caller.get(), all.data(), all.size(), MSG_NOSIGNAL));
  }
}

Outcome<std::string> ask_status(std::uint16_t port) {
  const std::string where = "port " + std::to_string(port);
  const os::Fd server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const os::AbstractAddress name = name_of(port);
  if (!server || connect(server.get(), name.get(), name.size()) != 0) {
    return failed(errno, where, errno == ECONNREFUSED ? "no server of this machine is there" : "");
  }
  // Anybody may have taken the name.
  const auto user = user_of(server.get());
  if (geteuid() != 0 && (!user || (*user != geteuid() && *user != 0))) {
    return failed(EACCES, where, "the server there belongs to another user; ask as that user");
  }
  std::string out;
  for (char buffer[4096];;) {
    pollfd ready{server.get(), POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMs) <= 0) return failed(ETIMEDOUT, where);
    const ssize_t got = read(server.get(), buffer, sizeof buffer);
    if (got < 0) return failed(errno, where);
    if (got == 0) break;
    out.append(buffer, static_cast<std::size_t>(got));
  }
  if (out.empty()) return failed(EACCES, where, "the server there belongs to another user");
  return out;
}

}  // namespace weft::files
