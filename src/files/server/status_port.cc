#include "files/server/status_port.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>

#include "os/abstract_address.h"
#include "os/lack.h"

namespace weft::files {
namespace {

constexpr int kCallersWaiting = 8;
constexpr std::size_t kCallersMost = 16;  // that have not said all: the oldest makes room
constexpr int kPatienceMs = 10000;
constexpr std::chrono::milliseconds kPause{200};  // without descriptors
constexpr std::size_t kTextMax = 100000;          // fits into the send buffer of a Unix socket
constexpr std::size_t kSaidMax = 8192;            // a token has at most 4096
constexpr std::string_view kToken = "token ";
constexpr std::string_view kTaken = "taken";

os::AbstractAddress name_of(std::uint16_t port) {
  return os::AbstractAddress("weft-serve-" + std::to_string(port));
}

std::optional<ucred> peer_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

bool is_ours_or_root(const std::optional<ucred>& peer) {
  return peer && (peer->uid == geteuid() || peer->uid == 0);
}

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Outcome<StatusPort> StatusPort::open(std::uint16_t port) {
  StatusPort out;
  out.listener_ = os::Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  out.ready_ = os::Fd(epoll_create1(EPOLL_CLOEXEC));
  const int listener = out.listener_.get();
  const os::AbstractAddress name = name_of(port);
  if (!out.listener_ || !out.ready_ || bind(listener, name.get(), name.size()) != 0 ||
      ::listen(listener, kCallersWaiting) != 0 || !watch(out.fd(), listener)) {
    return failed(errno, "weft serve --status has no name to ask at");
  }
  return out;
}

void StatusPort::listen(bool on) const {
  epoll_event event{};
  if (on) event.events = EPOLLIN;
  static_cast<void>(epoll_ctl(fd(), EPOLL_CTL_MOD, listener_.get(), &event));
}

void StatusPort::tick(Clock::time_point now) {
  if (!has_deadline() || now < resumes_) return;
  resumes_ = Clock::time_point();
  listen(true);
}

void StatusPort::take_callers() {
  if (has_deadline()) return;
  for (;;) {
    os::Fd caller(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!caller && os::is_lack(errno)) {
      listen(false);
      resumes_ = Clock::now() + kPause;
    }
    if (!caller) return;
    if (!is_ours_or_root(peer_of(caller.get())) || !watch(fd(), caller.get())) continue;
    if (callers_.size() == kCallersMost) callers_.erase(callers_.begin());
    callers_.push_back({std::move(caller), {}});
  }
}

// Whether it is done with.
bool StatusPort::serve(Caller& caller, const Answers& answers) const {
  char buffer[kSaidMax];
  const ssize_t got = recv(caller.socket.get(), buffer, sizeof buffer, 0);
  if (got < 0) return errno != EAGAIN;
  caller.said.append(buffer, static_cast<std::size_t>(got));
  if (caller.said.size() > kSaidMax) return true;
  if (got != 0) return false;
  std::string text;
  if (caller.said.empty()) {
    text = answers.status();
  } else if (caller.said.starts_with(kToken)) {
    const auto taken = answers.take_token(caller.said.substr(kToken.size()));
    text = taken ? std::string(kTaken) : taken.error().text();
  }
  text.resize(std::min(text.size(), kTextMax));
  static_cast<void>(!send(caller.socket.get(), text.data(), text.size(), MSG_NOSIGNAL));
  return true;
}

void StatusPort::answer(const Answers& answers) {
  take_callers();
  std::erase_if(callers_, [&](Caller& caller) { return serve(caller, answers); });
}

namespace {

// Connected to the server, which is that process, if one is named.
Outcome<os::Fd> reach(std::uint16_t port, std::optional<pid_t> wanted) {
  const std::string where = "port " + std::to_string(port);
  os::Fd server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const os::AbstractAddress name = name_of(port);
  if (!server || connect(server.get(), name.get(), name.size()) != 0) {
    return failed(errno, where, errno == ECONNREFUSED ? "no server of this machine is there" : "");
  }
  // Anybody may have taken the name.
  const auto peer = peer_of(server.get());
  if (geteuid() != 0 && !is_ours_or_root(peer)) {
    return failed(EACCES, where, "the server there belongs to another user; ask as that user");
  }
  if (wanted && (!peer || peer->pid != *wanted)) {
    return failed(ESRCH, where,
                  "the server there is not process " + std::to_string(*wanted) +
                      "; name the port that the server was given, by --port or --listen");
  }
  return server;
}

Outcome<std::string> ask(const os::Fd& server, std::uint16_t port, std::string_view request) {
  const std::string where = "port " + std::to_string(port);
  // If this fails, or is not read, there is no answer.
  static_cast<void>(!send(server.get(), request.data(), request.size(), MSG_NOSIGNAL));
  static_cast<void>(shutdown(server.get(), SHUT_WR));
  std::string out;
  for (char buffer[4096];;) {
    pollfd ready{server.get(), POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMs) <= 0) return failed(ETIMEDOUT, where);
    const ssize_t got = read(server.get(), buffer, sizeof buffer);
    if (got < 0 && errno != ECONNRESET) return failed(errno, where);
    if (got <= 0) break;
    out.append(buffer, static_cast<std::size_t>(got));
  }
  if (out.empty()) return failed(EACCES, where, "the server there belongs to another user");
  return out;
}

}  // namespace

Outcome<std::string> ask_status(std::uint16_t port) {
  const auto server = reach(port, std::nullopt);
  return server ? ask(*server, port, {}) : tl::unexpected(server.error());
}

Outcome<void> give_token(std::uint16_t port, pid_t server, std::string_view token) {
  const auto reached = reach(port, server);
  if (!reached) return tl::unexpected(reached.error());
  const auto answer = ask(*reached, port, std::string(kToken) + std::string(token));
  if (!answer) return tl::unexpected(answer.error());
  return *answer == kTaken ? Outcome<void>() : failed(EINVAL, "the server", *answer);
}

}  // namespace weft::files
