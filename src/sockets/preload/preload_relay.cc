// A socket for a holder that this library can't follow: exec, stdio, descriptors passed to other
// processes. It gets an ordinary one, and a process of its own passes the octets on.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>

#include "sockets/preload/preload_relay.h"
#include "sockets/preload/socket_list.h"
#include "sockets/real_calls.h"
#include "sockets/relay/relay_protocol.h"

namespace weft::sockets {
namespace {

constexpr std::size_t kAddress = 28;  // of a sockaddr_in6

// --- a relay of one socket: system calls, the channel, nothing that allocates ---

// Octets on their way in one direction. What could not be passed on yet waits in it.
struct Load {
  char data[32768];
  std::size_t size = 0;
  std::size_t sent = 0;
  bool ended = false;  // the source has no more
  bool told = false;   // ... and the target knows
};

bool take(Load& load, ssize_t n) {
  if (n > 0) {
    load.size = static_cast<std::size_t>(n);
    load.sent = 0;
    return true;
  }
  if (n == 0 || (errno != EAGAIN && errno != EINTR)) load.ended = true;
  return n == 0;
}

bool give(Load& load, ssize_t n) {
  if (n > 0) load.sent += static_cast<std::size_t>(n);
  if (load.sent == load.size) load.size = load.sent = 0;
  if (n < 0 && errno != EAGAIN && errno != EINTR) {
    load.ended = true;  // nobody is left to pass it to
    load.size = load.sent = 0;
  }
  return n > 0;
}

// One round in one direction.   True: something moved.
template <class Read, class Write, class End>
bool move(Load& load, Read read, Write write, End end) {
  bool moved = false;
  if (load.size == 0 && !load.ended) moved = take(load, read(load.data, sizeof load.data));
  if (load.size > 0)
    moved = give(load, write(load.data + load.sent, load.size - load.sent)) || moved;
  if (load.ended && load.size == 0 && !load.told) {
    load.told = true;
    end();
    moved = true;
  }
  return moved;
}

// Passes octets between the channel and `local` until both directions have ended.
void relay_between(Channel& channel, int local) {
  static Load out;
  static Load in;
  out = in = {};
  channel.mirror();
  for (;;) {
    const bool sent = move(
        out, [&](char* to, std::size_t n) { return real().recv(local, to, n, MSG_DONTWAIT); },
        [&](const char* from, std::size_t n) {
          const iovec part{const_cast<char*>(from), n};
          return channel.transmit(&part, 1, false);
        },
        [&] { channel.shut(SHUT_WR); });
    const bool got = move(
        in,
        [&](char* to, std::size_t n) {
          const iovec part{to, n};
          return channel.receive(&part, 1, 0, false);
        },
        [&](const char* from, std::size_t n) {
          return real().send(local, from, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        },
        [&] { real().shutdown(local, SHUT_WR); });
    if (out.told && in.told) return;
    if (sent || got) continue;
    pollfd fds[2] = {{channel.socket(), 0, 0}, {local, 0, 0}};
    if (in.size == 0 && !in.ended) fds[0].events |= POLLIN;
    if (out.size > 0) fds[0].events |= POLLOUT;
    if (out.size == 0 && !out.ended) fds[1].events |= POLLIN;
    if (in.size > 0) fds[1].events |= POLLOUT;
    // A hang-up with nothing left to ask for would wake us forever.
    for (pollfd& one : fds) {
      if (one.events == 0) one.fd = -1;
    }
    if (fds[0].fd < 0 && fds[1].fd < 0) return;
    real().poll(fds, 2, -1);
    // The holder is gone altogether: nobody reads what still comes.
    if ((fds[1].revents & (POLLHUP | POLLERR)) != 0 && out.told) return;
  }
}

long fork_quietly() { return syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr); }

// Until the holder touches the socket. False: it let go of it without.
bool await_beginning(int begin, int local) {
  for (;;) {
    pollfd fds[2] = {{begin, POLLIN, 0}, {local, POLLIN, 0}};
    if (real().poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) return true;
    if ((fds[1].revents & POLLIN) != 0) {
      std::uint8_t octet = 0;
      // Octets were written by a call that we could not see.
      return real().recv(local, &octet, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    }
    if (fds[1].revents != 0) return false;
  }
}

[[noreturn]] void run_relay(Channel* channel, int local, int begin) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  syscall(SYS_setsid);
  if (fork_quietly() != 0) _exit(0);
  // Keep what the relay needs. Other descriptors would keep the program's pipes and files open.
  int kept[3] = {channel->socket(), local, begin};
  std::sort(std::begin(kept), std::end(kept));
  int from = 0;
  for (const int fd : kept) {
    if (fd > from) syscall(SYS_close_range, from, fd - 1, 0);
    from = std::max(from, fd + 1);
  }
  syscall(SYS_close_range, from, ~0U, 0);
  if (begin < 0 || await_beginning(begin, local)) relay_between(*channel, local);
  if (channel->end().holders.fetch_sub(1) == 1) channel->leave();
  _exit(0);
}

// Names `fd` so that its peer can tell both addresses of the connection.
void name_relayed(int fd, const Channel& channel, std::uint64_t unique) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  char* at = address.sun_path + 1;
  std::memcpy(at, kRelayedPrefix, sizeof kRelayedPrefix - 1);
  at += sizeof kRelayedPrefix - 1;
  std::memcpy(at, &unique, kRelayedUnique);
  at += kRelayedUnique;
  std::memcpy(at, &channel.end().local, kAddress);
  at += kAddress;
  std::memcpy(at, &channel.end().peer, kAddress);
  at += kAddress;
  const auto length = static_cast<socklen_t>(at - reinterpret_cast<char*>(&address));
  static_cast<void>(real().bind(fd, reinterpret_cast<const sockaddr*>(&address), length));
}

socklen_t begin_name(const void* unique, sockaddr_un& out) {
  out = {};
  out.sun_family = AF_UNIX;
  constexpr std::size_t kPrefix = sizeof kBeginPrefix - 1;
  std::memcpy(out.sun_path + 1, kBeginPrefix, kPrefix);
  std::memcpy(out.sun_path + 1 + kPrefix, unique, kRelayedUnique);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kPrefix + kRelayedUnique);
}

// Where a relay is told to begin. -1: it can't be.
int make_beginning(std::uint64_t unique) {
  const int made = real().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un name;
  const socklen_t length = begin_name(&unique, name);
  if (made >= 0 && real().bind(made, reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    real().close(made);
    return -1;
  }
  return made;
}

}  // namespace

int relayed_copy(Channel* channel, int number, RelayStart start) {
  int pair[2];
  if (real().socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
  std::uint64_t unique = 0;
  static_cast<void>(!getrandom(&unique, sizeof unique, 0));
  name_relayed(pair[1], *channel, unique);
  const int begin = start == RelayStart::kOnTouch ? make_beginning(unique) : -1;
  channel->end().holders.fetch_add(1);
  const long pid = fork_quietly();
  if (pid == 0) {
    channel->set_socket(number);
    run_relay(channel, pair[1], begin);
  }
  real().close(pair[1]);
  if (begin >= 0) real().close(begin);
  if (pid < 0) {
    real().close(pair[0]);
    return -1;
  }
  int status = 0;
  while (waitpid(static_cast<pid_t>(pid), &status, __WALL) < 0 && errno == EINTR) {
  }
  return pair[0];
}

bool make_relayed(int fd, RelayStart start) {
  const table::Lock lock;
  Conn* conn = table::conn_of(fd);
  if (table::kind_of(fd) != Kind::kChannel || conn == nullptr || conn->channel == nullptr)
    return false;
  const int made = relayed_copy(conn->channel, fd, start);
  if (made < 0) return false;
  if (conn->channel->end().nonblocking.load() != 0) {
    real().fcntl(made, F_SETFL, O_RDWR | O_NONBLOCK);
  }
  const bool more = conn->refs > 1;
  for (int i = more ? 0 : fd; more ? i < table::highest() : i == fd; ++i) {
    if (table::conn_of(i) != conn) continue;
    const int flags = real().fcntl(i, F_GETFD);
    table::put(i, Kind::kPlain, nullptr);
    real().dup3(made, i, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
    list::renumber(i);
  }
  real().close(made);
  return true;
}

void begin_relayed(int fd) {
  sockaddr_un name{};
  socklen_t length = sizeof name;
  const int error = errno;
  constexpr std::size_t kPrefix = sizeof kRelayedPrefix - 1;
  if (real().getpeername(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
      name.sun_family == AF_UNIX && length > offsetof(sockaddr_un, sun_path) + 1 + kPrefix + 8 &&
      std::memcmp(name.sun_path + 1, kRelayedPrefix, kPrefix) == 0) {
    sockaddr_un to;
    const socklen_t to_length = begin_name(name.sun_path + 1 + kPrefix, to);
    const int probe = real().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    // Nobody there: it has begun.
    real().sendto(probe, "", 1, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), to_length);
    if (probe >= 0) real().close(probe);
  }
  errno = error;
}

bool names_of_relayed(int fd, sockaddr_storage& local, socklen_t& local_length,
                      sockaddr_storage& peer, socklen_t& peer_length) {
  sockaddr_un name{};
  socklen_t length = sizeof name;
  const int error = errno;
  const bool there = real().getpeername(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
                     name.sun_family == AF_UNIX;
  errno = error;
  constexpr std::size_t kPrefix = sizeof kRelayedPrefix - 1;
  constexpr std::size_t kWhole = offsetof(sockaddr_un, sun_path) + 1 + kPrefix + 8 + 2 * kAddress;
  if (!there || length != kWhole || std::memcmp(name.sun_path + 1, kRelayedPrefix, kPrefix) != 0) {
    return false;
  }
  const char* at = name.sun_path + 1 + kPrefix + 8;
  local = peer = {};
  std::memcpy(&local, at, kAddress);
  std::memcpy(&peer, at + kAddress, kAddress);
  local_length = local.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  peer_length = peer.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return true;
}

}  // namespace weft::sockets
