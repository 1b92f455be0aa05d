#include "sockets/preload/preload_setup.h"

#include <fcntl.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "sockets/preload/preload.h"
#include "sockets/preload/preload_hot.h"
#include "sockets/preload/preload_settings.h"
#include "sockets/preload/preload_ways.h"
#include "sockets/preload/socket_list.h"
#include "sockets/preload/syn_mark.h"
#include "sockets/relay/relay_client.h"

namespace weft::sockets {
namespace {

void name_channel(int fd, Channel& channel) {
  sockaddr_storage local{};
  sockaddr_storage peer{};
  socklen_t local_length = sizeof local;
  socklen_t peer_length = sizeof peer;
  real().getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length);
  real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length);
  channel.set_names(reinterpret_cast<sockaddr*>(&local), local_length,
                    reinterpret_cast<sockaddr*>(&peer), peer_length);
}

// "weft-socket,PATH,LOCAL,PEER": names the rings in /proc/PID/maps.
void make_label(char* out, size_t size, const char* path, int fd) {
  sockaddr_storage local{};
  sockaddr_storage peer{};
  socklen_t length = sizeof local;
  real().getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length);
  length = sizeof peer;
  real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length);
  char a[80];
  char b[80];
  address_text(reinterpret_cast<sockaddr*>(&local), a, sizeof a);
  address_text(reinterpret_cast<sockaddr*>(&peer), b, sizeof b);
  std::snprintf(out, size, "%s,%s,%s,%s", kChannelLabel, path, a, b);
}

}  // namespace

// Makes a channel whose other end goes to the relay, with the TCP socket.
Opened channel_by_relay(int fd, RelayRequest request, const char* path, const Greeting* greeting) {
  char label[240];
  make_label(label, sizeof label, path, fd);
  Channel::Parts parts;
  Opened made;
  if (!Channel::create(label, parts)) {
    made.error = errno;
    return made;
  }
  made.flags = real().fcntl(fd, F_GETFL);
  made.channel = Channel::attach(parts.memory, 0, parts.pair[0]);
  bool done = made.channel != nullptr;
  if (done) {
    name_channel(fd, *made.channel);
    const int fds[3] = {fd, parts.memory, parts.pair[1]};
    done = ask_relay(request, fds, 3);
  }
  // The greeting fits: nothing else has been sent on this connection.
  if (done && greeting != nullptr) {
    done = real().send(fd, greeting->data(), greeting->size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(greeting->size());
  }
  if (done) {
    made.socket = std::exchange(parts.pair[0], -1);
  } else {
    made.error = errno;
    if (made.channel != nullptr) made.channel->release();
    made.channel = nullptr;
    real().fcntl(fd, F_SETFL, made.flags);
  }
  Channel::discard(parts);
  return made;
}

// Puts it in the place of `fd`, or lets go of it.
bool install(int fd, Conn* conn, Opened opened) {
  if (opened.channel == nullptr) return false;
  if (replace_by_channel(fd, opened, conn)) return true;
  opened.channel->release();
  real().close(opened.socket);
  return false;
}

// The connection of a client can't go where it shall.
void give_up(int fd, const Conn& conn, const char* reason) {
  const auto* peer = reinterpret_cast<const sockaddr*>(&conn.peer);
  note_path(fd, "connect", peer, must(conn.way) ? "closed" : "tcp", reason);
  if (must(conn.way)) real().shutdown(fd, SHUT_RDWR);
  table::settle_plain(fd);
}

// The connection of a client is there: now it goes where it shall.
void upgrade_client(int fd, Conn* conn) {
  unmark_syn(fd, *conn);
  RelayRequest request;
  const bool ring = by_ring(conn->way);
  request.op = ring ? RelayOp::kDeposit : RelayOp::kConnect;
  request.fall_back = must(conn->way) ? 0 : 1;
  request.peer = conn->peer;
  request.peer_length = conn->peer_length;
  if (getrandom(request.token.data(), request.token.size(), 0) !=
      static_cast<ssize_t>(request.token.size())) {
    give_up(fd, *conn, "no random numbers");
    return;
  }
  const char* reason = "no relay, or no descriptors left";
  Secret relay{};
  if (!conn->watchers_lost && relay_name(relay)) {
    const Greeting greeting = make_greeting(relay, request.token);
    const Opened opened =
        channel_by_relay(fd, request, ring ? "ring" : "rdma", ring ? &greeting : nullptr);
    if (install(fd, conn, opened)) return;
    if (opened.error == kDeclinedLately) reason = "the server declined RDMA a moment ago";
  }
  give_up(fd, *conn, reason);
}

// An accepted connection began with a greeting: its other end waits at the client's relay.
Opened join_ring(int fd, const std::uint8_t* greeting) {
  Secret relay;
  RelayRequest request;
  request.op = RelayOp::kClaim;
  std::memcpy(relay.data(), greeting + kMpaHeader + 12, relay.size());
  std::memcpy(request.token.data(), greeting + kMpaHeader + 12 + relay.size(), relay.size());
  int fds[2] = {-1, -1};
  Opened made;
  if (!claim_from(relay, request, fds)) return made;
  made.channel = Channel::attach(fds[0], 1, fds[1]);
  real().close(fds[0]);
  if (made.channel == nullptr) {
    real().close(fds[1]);
    return made;
  }
  made.socket = fds[1];
  made.flags = real().fcntl(fd, F_GETFL);
  name_channel(fd, *made.channel);
  return made;
}

bool replace_by_channel(int fd, const Opened& opened, Conn* conn) {
  if (conn->watchers_lost) return false;
  Channel* channel = opened.channel;
  const int socket = opened.socket;
  const int flags = opened.flags;
  const int descriptor_flags = real().fcntl(fd, F_GETFD);
  const int spare = real().fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const int tcp = spare < 0 ? -1 : table::move_high(spare);
  if (tcp < 0) return false;
  for (const int name : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    timeval limit{};
    socklen_t length = sizeof limit;
    if (real().getsockopt(fd, SOL_SOCKET, name, &limit, &length) == 0) {
      real().setsockopt(socket, SOL_SOCKET, name, &limit, length);
    }
  }
  real().fcntl(socket, F_SETFL, O_RDWR | (flags & (O_NONBLOCK | O_ASYNC)));
  for (int i = 0; i < conn->watcher_count; ++i) {
    real().epoll_ctl(conn->watchers[i].epoll, EPOLL_CTL_DEL, fd, nullptr);
  }
  channel->end().nonblocking = (flags & O_NONBLOCK) != 0 ? 1 : 0;
  channel->set_socket(fd);
  conn->channel = channel;
  conn->asynchronous = (flags & O_ASYNC) != 0;
  conn->tcp = tcp;
  // Other numbers of the same socket, made by dup().
  for (int i = 0; conn->refs > 1 && i < table::highest(); ++i) {
    if (i == fd || table::conn_of(i) != conn) continue;
    const int flags_there = real().fcntl(i, F_GETFD);
    real().dup3(socket, i, flags_there & FD_CLOEXEC ? O_CLOEXEC : 0);
    table::put(i, Kind::kChannel, conn);
  }
  real().dup3(socket, fd, descriptor_flags & FD_CLOEXEC ? O_CLOEXEC : 0);
  real().close(socket);
  table::put(fd, Kind::kChannel, conn);
  list::renumber(fd);
  if ((flags & (O_NONBLOCK | O_ASYNC)) != 0 || conn->watcher_count > 0) channel->mirror();
  for (int i = 0; i < conn->watcher_count; ++i) {
    real().epoll_ctl(conn->watchers[i].epoll, EPOLL_CTL_ADD, fd, &conn->watchers[i].event);
  }
  hot::note_watchers(*conn);
  return true;
}

}  // namespace weft::sockets
