// Descriptor numbers: close, dup, fcntl, ioctl; and what hands a socket to a holder that this
// library can't follow: exec, stdio, descriptors passed to other processes.
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/preload.h"
#include "sockets/relay_protocol.h"

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
    // A hang-up with nothing left to ask for would wake us for ever.
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

[[noreturn]] void run_relay(Channel* channel, int local) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  syscall(SYS_setsid);
  if (fork_quietly() != 0) _exit(0);
  // Two descriptors stay: others would keep the program's pipes and files open.
  const int low = std::min(channel->socket(), local);
  const int high = std::max(channel->socket(), local);
  if (low > 0) syscall(SYS_close_range, 0, low - 1, 0);
  if (high > low + 1) syscall(SYS_close_range, low + 1, high - 1, 0);
  syscall(SYS_close_range, high + 1, ~0U, 0);
  relay_between(*channel, local);
  _exit(0);
}

// Names `fd` so that its peer can tell both addresses of the connection.
void name_relayed(int fd, const Channel& channel) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  char* at = address.sun_path + 1;
  std::memcpy(at, kRelayedPrefix, sizeof kRelayedPrefix - 1);
  at += sizeof kRelayedPrefix - 1;
  std::uint64_t unique = 0;
  static_cast<void>(!getrandom(&unique, sizeof unique, 0));
  std::memcpy(at, &unique, sizeof unique);
  at += sizeof unique;
  std::memcpy(at, &channel.end().local, kAddress);
  at += kAddress;
  std::memcpy(at, &channel.end().peer, kAddress);
  at += kAddress;
  const auto length = static_cast<socklen_t>(at - reinterpret_cast<char*>(&address));
  static_cast<void>(real().bind(fd, reinterpret_cast<const sockaddr*>(&address), length));
}

bool is_channel(int fd) { return table::kind_of(fd) == Kind::kChannel; }

// What a child of vfork() has done to its descriptors. Its memory is its parent's, whose table must
// not learn of it.
struct Borrowed {
  static constexpr int kMost = 64;
  pid_t pid;
  int count;
  struct {
    int fd;
    const Conn* conn;  // null: nothing of ours is there any more
  } entries[kMost];
};
Borrowed g_borrowed;
pid_t g_pid = 0;  // whose memory this is

bool borrowing() { return getpid() != g_pid; }

void note_borrowed(int fd, const Conn* conn) {
  if (g_borrowed.pid != getpid()) {
    g_borrowed.pid = getpid();
    g_borrowed.count = 0;
  }
  if (g_borrowed.count == Borrowed::kMost) return;
  g_borrowed.entries[g_borrowed.count].fd = fd;
  g_borrowed.entries[g_borrowed.count].conn = conn;
  ++g_borrowed.count;
}

// The connection behind a number of this process, be it a child of vfork().
const Conn* conn_here(int fd) {
  if (borrowing() && g_borrowed.pid == getpid()) {
    for (int i = g_borrowed.count - 1; i >= 0; --i) {
      if (g_borrowed.entries[i].fd == fd) return g_borrowed.entries[i].conn;
    }
  }
  return is_channel(fd) ? table::conn_of(fd) : nullptr;
}

int highest_here() {
  int most = table::highest();
  if (borrowing() && g_borrowed.pid == getpid()) {
    for (int i = 0; i < g_borrowed.count; ++i) most = std::max(most, g_borrowed.entries[i].fd + 1);
  }
  return most;
}

bool inherited(int fd) {
  const int flags = real().fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

// A lower number of the same connection is inherited as well, and has been seen to.
bool seen_to(const Conn* conn, int fd) {
  for (int lower = 0; lower < fd; ++lower) {
    if (conn_here(lower) == conn && inherited(lower)) return true;
  }
  return false;
}

// Sockets that the next program inherits become ordinary ones: only descriptors change, since the
// call may fail, and since memory may be borrowed.
void before_exec() {
  const int highest = highest_here();
  for (int fd = 0; fd < highest; ++fd) {
    const Conn* conn = conn_here(fd);
    if (conn == nullptr || conn->channel == nullptr || !inherited(fd) || seen_to(conn, fd)) {
      continue;
    }
    const int made = relayed_copy(conn->channel, fd);
    if (made < 0) continue;
    const int status = conn->channel->end().nonblocking.load() != 0 ? O_NONBLOCK : 0;
    real().fcntl(made, F_SETFL, O_RDWR | status);
    // Its other numbers become the same socket.
    for (int other = fd + 1; other < highest; ++other) {
      if (conn_here(other) == conn && inherited(other)) real().dup3(made, other, 0);
    }
    real().dup3(made, fd, 0);
    real().close(made);
  }
}

}  // namespace

int relayed_copy(Channel* channel, int number) {
  int pair[2];
  if (real().socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
  name_relayed(pair[1], *channel);
  channel->end().holders.fetch_add(1);
  const long pid = fork_quietly();
  if (pid == 0) {
    channel->set_socket(number);
    run_relay(channel, pair[1]);
  }
  real().close(pair[1]);
  if (pid < 0) {
    real().close(pair[0]);
    return -1;
  }
  int status = 0;
  while (waitpid(static_cast<pid_t>(pid), &status, __WALL) < 0 && errno == EINTR) {
  }
  return pair[0];
}

bool make_relayed(int fd) {
  const std::lock_guard lock(table::mutex());
  Conn* conn = table::conn_of(fd);
  if (!is_channel(fd) || conn == nullptr || conn->channel == nullptr) return false;
  const int made = relayed_copy(conn->channel, fd);
  if (made < 0) return false;
  if (conn->channel->end().nonblocking.load() != 0) {
    real().fcntl(made, F_SETFL, O_RDWR | O_NONBLOCK);
  }
  const int flags = real().fcntl(fd, F_GETFD);
  table::forget(fd);
  real().dup3(made, fd, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
  real().close(made);
  table::put(fd, Kind::kPlain, nullptr);
  return true;
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
      const Use use(fds[i]);
      if (use.channel() == nullptr) continue;
      const int made = relayed_copy(use.channel(), use.channel()->socket());
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

void* real_symbol(const char* name) { return dlsym(RTLD_NEXT, name); }

namespace {

__attribute__((constructor)) void begin() {
  static_cast<void>(real());
  g_pid = getpid();
  pthread_atfork(table::before_fork, table::after_fork, [] {
    table::in_child();
    g_pid = getpid();
  });
}

// Everything in [first, last] but Weft's own.
int close_each(unsigned first, unsigned last, int flags) {
  // Before exec: Weft's own are close-on-exec anyhow.
  if (borrowing()) return real().close_range(first, last, flags);
  const std::lock_guard lock(table::mutex());
  unsigned from = first;
  const auto top = static_cast<unsigned>(std::max(table::highest(), 0));
  for (unsigned fd = first; fd <= last && fd < top; ++fd) {
    if (table::kind_of(static_cast<int>(fd)) == Kind::kInternal) {
      if (fd > from) real().close_range(from, fd - 1, flags);
      from = fd + 1;
    } else if ((flags & CLOSE_RANGE_CLOEXEC) == 0) {
      table::forget(static_cast<int>(fd));
    }
  }
  return from <= last ? real().close_range(from, last, flags) : 0;
}

// `to` is about to be replaced. Weft's own descriptor there moves away.
void vacate(int to) {
  if (table::kind_of(to) != Kind::kInternal) return;
  const std::lock_guard lock(table::mutex());
  const int spare = real().fcntl(to, F_DUPFD_CLOEXEC, to + 1);
  if (spare < 0) return;
  for (int i = 0; i < table::highest(); ++i) {
    Conn* conn = table::conn_of(i);
    if (conn == nullptr) continue;
    if (conn->tcp == to) conn->tcp = spare;
    if (conn->listen_mark == to) conn->listen_mark = spare;
  }
  table::put(spare, Kind::kInternal, nullptr);
  table::put(to, Kind::kUnknown, nullptr);
}

int set_flags(int fd, long value) {
  const int result = real().fcntl(fd, F_SETFL, value);
  if (result != 0) return result;
  const Use use(fd);
  if (use.channel() != nullptr) {
    use.channel()->end().nonblocking = (value & O_NONBLOCK) != 0 ? 1 : 0;
    if ((value & (O_NONBLOCK | O_ASYNC)) != 0) use.channel()->mirror();
  }
  return result;
}

int do_fcntl(int fd, int command, long value) {
  if (command == F_SETFL) return set_flags(fd, value);
  const int result = real().fcntl(fd, command, value);
  if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) {
    const std::lock_guard lock(table::mutex());
    table::copy(fd, result);
  }
  return result;
}

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT int close(int fd) {
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kInternal) return fail_with(EBADF);
  if (kind > Kind::kPlain && borrowing()) {
    note_borrowed(fd, nullptr);
    return real().close(fd);
  }
  if (kind != Kind::kUnknown) table::forget(fd);
  return real().close(fd);
}

WEFT_EXPORT int close_range(unsigned first, unsigned last, int flags) {
  if (first > last || (flags & CLOSE_RANGE_UNSHARE) != 0) {
    return real().close_range(first, last, flags);
  }
  return close_each(first, last, flags);
}

WEFT_EXPORT void closefrom(int first) {
  close_each(static_cast<unsigned>(std::max(first, 0)), ~0U, 0);
}

WEFT_EXPORT int dup(int fd) {
  if (table::kind_of(fd) == Kind::kInternal) return fail_with(EBADF);
  const int made = real().dup(fd);
  if (made >= 0) {
    const std::lock_guard lock(table::mutex());
    table::copy(fd, made);
  }
  return made;
}

WEFT_EXPORT int dup3(int from, int to, int flags) {
  if (table::kind_of(from) == Kind::kInternal) return fail_with(EBADF);
  if (borrowing()) {
    const int result = real().dup3(from, to, flags);
    if (result >= 0) note_borrowed(to, conn_here(from));
    return result;
  }
  if (from != to) vacate(to);
  const std::lock_guard lock(table::mutex());
  // First, so that a channel keeps a number that lives.
  const int result = real().dup3(from, to, flags);
  if (result >= 0) table::copy(from, to);
  return result;
}

WEFT_EXPORT int dup2(int from, int to) {
  if (from == to || table::kind_of(from) == Kind::kInternal) return real().dup2(from, to);
  if (borrowing()) {
    const int result = real().dup2(from, to);
    if (result >= 0) note_borrowed(to, conn_here(from));
    return result;
  }
  vacate(to);
  const std::lock_guard lock(table::mutex());
  const int result = real().dup2(from, to);
  if (result >= 0) table::copy(from, to);
  return result;
}

WEFT_EXPORT int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  return do_fcntl(fd, command, value);
}

WEFT_EXPORT int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  return do_fcntl(fd, command, value);
}

WEFT_EXPORT int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == FIONREAD && table::kind_of(fd) == Kind::kUndecided) resolve(fd, false);
  const Use use(fd);
  if (use.channel() == nullptr || argument == nullptr) {
    return real().ioctl(fd, request, argument);
  }
  Channel& channel = *use.channel();
  if (request == FIONREAD || request == TIOCOUTQ) {
    const std::size_t n = request == FIONREAD ? channel.unread() : channel.unsent();
    *static_cast<int*>(argument) = static_cast<int>(n);
    return 0;
  }
  const int result = real().ioctl(fd, request, argument);
  if (result == 0 && request == FIONBIO) {
    channel.end().nonblocking = *static_cast<int*>(argument) != 0 ? 1 : 0;
    if (*static_cast<int*>(argument) != 0) channel.mirror();
  }
  if (result == 0 && request == FIOASYNC) channel.mirror();
  return result;
}

WEFT_EXPORT FILE* fdopen(int fd, const char* mode) {
  if (table::kind_of(fd) == Kind::kUndecided) resolve(fd, mode != nullptr && mode[0] == 'w');
  if (is_channel(fd)) make_relayed(fd);  // stdio reads and writes out of our sight
  return real().fdopen(fd, mode);
}

WEFT_EXPORT int execve(const char* path, char* const argv[], char* const envp[]) {
  before_exec();
  return real().execve(path, argv, envp);
}

WEFT_EXPORT int execv(const char* path, char* const argv[]) {
  before_exec();
  return real().execve(path, argv, environ);
}

WEFT_EXPORT int execvp(const char* file, char* const argv[]) {
  before_exec();
  return real().execvp(file, argv);
}

WEFT_EXPORT int execvpe(const char* file, char* const argv[], char* const envp[]) {
  before_exec();
  return real().execvpe(file, argv, envp);
}

WEFT_EXPORT int fexecve(int fd, char* const argv[], char* const envp[]) {
  before_exec();
  return real().fexecve(fd, argv, envp);
}

namespace {

constexpr int kArgumentsMost = 1024;

// The arguments of an execl-like call, after the first.
int collect(const char* first, va_list& arguments, char** out) {
  int count = 0;
  out[count++] = const_cast<char*>(first);
  while (count < kArgumentsMost && out[count - 1] != nullptr) {
    out[count++] = va_arg(arguments, char*);
  }
  return count;
}

}  // namespace

WEFT_EXPORT int execl(const char* path, const char* first, ...) {
  char* argv[kArgumentsMost];
  va_list arguments;
  va_start(arguments, first);
  collect(first, arguments, argv);
  va_end(arguments);
  return execv(path, argv);
}

WEFT_EXPORT int execlp(const char* file, const char* first, ...) {
  char* argv[kArgumentsMost];
  va_list arguments;
  va_start(arguments, first);
  collect(first, arguments, argv);
  va_end(arguments);
  return execvp(file, argv);
}

WEFT_EXPORT int execle(const char* path, const char* first, ...) {
  char* argv[kArgumentsMost];
  va_list arguments;
  va_start(arguments, first);
  collect(first, arguments, argv);
  char* const* envp = va_arg(arguments, char* const*);
  va_end(arguments);
  return execve(path, argv, envp);
}

// A number that a spawned program will get: it becomes an ordinary socket now.
WEFT_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t* actions, int from,
                                                 int to) {
  if (is_channel(from)) make_relayed(from);
  static const auto next = reinterpret_cast<decltype(&posix_spawn_file_actions_adddup2)>(
      real_symbol("posix_spawn_file_actions_adddup2"));
  return next(actions, from, to);
}
