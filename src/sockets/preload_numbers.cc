// Descriptor numbers: close, dup, fcntl, ioctl; and what hands a socket to a holder that this
// library can't follow: exec, stdio, descriptors passed to other processes.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
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
#include "sockets/socket_list.h"

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
  // What it needs stays: others would keep the program's pipes and files open.
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

// Forgets what an earlier child has done.
void begin_borrowed() {
  if (g_borrowed.pid == getpid()) return;
  g_borrowed.pid = getpid();
  g_borrowed.count = 0;
}

void note_borrowed(int fd, const Conn* conn) {
  begin_borrowed();
  if (g_borrowed.count == Borrowed::kMost) return;
  g_borrowed.entries[g_borrowed.count].fd = fd;
  g_borrowed.entries[g_borrowed.count].conn = conn;
  ++g_borrowed.count;
}

// The connection behind a number: one that has a channel, or is not decided yet. `borrowed`: of a
// child of vfork(), which g_borrowed is about.
const Conn* conn_here(int fd, bool borrowed) {
  if (borrowed) {
    for (int i = g_borrowed.count - 1; i >= 0; --i) {
      if (g_borrowed.entries[i].fd == fd) return g_borrowed.entries[i].conn;
    }
  }
  const Kind kind = table::kind_of(fd);
  return kind == Kind::kChannel || kind == Kind::kUndecided ? table::conn_of(fd) : nullptr;
}

int highest_here(bool borrowed) {
  int most = table::highest();
  if (borrowed) {
    for (int i = 0; i < g_borrowed.count; ++i) most = std::max(most, g_borrowed.entries[i].fd + 1);
  }
  return most;
}

bool inherited(int fd) {
  const int flags = real().fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

// An ELF file with an interpreter, which is what loads this library; or a script, whose interpreter
// is such a file.
bool is_dynamic(const char* head, std::size_t size) {
  if (size > 2 && head[0] == '#' && head[1] == '!') return true;
  ElfW(Ehdr) elf;
  if (size < sizeof elf) return false;
  std::memcpy(&elf, head, sizeof elf);
  if (std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) return false;
  for (std::size_t i = 0; i < elf.e_phnum; ++i) {
    ElfW(Phdr) part;
    const std::size_t at = elf.e_phoff + i * sizeof part;
    if (at > size || size - at < sizeof part) return false;
    std::memcpy(&part, head + at, sizeof part);
    if (part.p_type == PT_INTERP) return true;
  }
  return false;
}

// The program that is about to run will have this library, as far as can be told.
bool will_be_preloaded(const char* path, char* const envp[]) {
  const char* preload = nullptr;
  for (; envp != nullptr && *envp != nullptr; ++envp) {
    if (std::strncmp(*envp, "LD_PRELOAD=", 11) == 0) preload = *envp;
  }
  if (preload == nullptr || std::strstr(preload, "libweft-sockets.so") == nullptr) return false;
  if (path == nullptr) return false;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct stat info {};
  char head[4096];
  const ssize_t n = fstat(file, &info) == 0 && (info.st_mode & (S_ISUID | S_ISGID)) == 0
                        ? real().read(file, head, sizeof head)
                        : -1;
  real().close(file);
  return n > 0 && is_dynamic(head, static_cast<std::size_t>(n));
}

// In a child of vfork(), whose table is its parent's: only descriptors change.
void relay_borrowed(int fd, const Conn* conn, int highest, RelayStart start) {
  Opened opened;
  opened.flags = real().fcntl(fd, F_GETFL);
  Channel* channel = conn->channel;
  int number = fd;
  if (channel == nullptr) {
    opened = open_undecided(fd);
    if (opened.channel == nullptr) return;
    channel = opened.channel;
    number = opened.socket;
  }
  const int made = relayed_copy(channel, number, start);
  if (opened.channel != nullptr) {
    opened.channel->release();
    real().close(opened.socket);
  }
  if (made < 0) return;
  real().fcntl(made, F_SETFL, O_RDWR | (opened.flags & O_NONBLOCK));
  // Its other numbers become the same socket. Noted, for the call may fail and be tried again.
  for (int other = highest - 1; other >= fd; --other) {
    if (conn_here(other, true) != conn || !inherited(other)) continue;
    real().dup3(made, other, 0);
    note_borrowed(other, nullptr);
  }
  real().close(made);
}

// Sockets that the next program inherits become ordinary ones, which it can use without us.
void before_exec(const char* path, char* const envp[]) {
  const RelayStart start = will_be_preloaded(path, envp) ? RelayStart::kOnTouch : RelayStart::kNow;
  const bool borrowed = borrowing();
  if (borrowed) begin_borrowed();
  const int highest = highest_here(borrowed);
  for (int fd = 0; fd < highest; ++fd) {
    const Conn* conn = conn_here(fd, borrowed);
    if (conn == nullptr || !inherited(fd)) continue;
    if (borrowed) {
      relay_borrowed(fd, conn, highest, start);
      continue;
    }
    static_cast<void>(decide(fd, true));
    make_relayed(fd, start);
  }
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
  const std::lock_guard lock(table::mutex());
  Conn* conn = table::conn_of(fd);
  if (!is_channel(fd) || conn == nullptr || conn->channel == nullptr) return false;
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

void* real_symbol(const char* name) { return dlsym(RTLD_NEXT, name); }

namespace {

__attribute__((constructor)) void begin() {
  static_cast<void>(real());
  g_pid = getpid();
  // Standard input and output may be used by stdio, whose calls we do not see.
  for (const int fd : {0, 1, 2}) begin_relayed(fd);
  pthread_atfork(table::before_fork, table::after_fork, [] {
    table::in_child();
    list::in_child();
    g_pid = getpid();
  });
}

__attribute__((destructor)) void end() { table::at_exit(); }

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

// Where execvp() will find `file`. Null: nowhere.
const char* find_file(const char* file, char (&out)[PATH_MAX]) {
  if (std::strchr(file, '/') != nullptr) return file;
  const char* at = std::getenv("PATH");
  while (at != nullptr && *at != '\0') {
    const std::size_t n = std::strcspn(at, ":");
    const int size = std::snprintf(out, sizeof out, "%.*s/%s", static_cast<int>(n), at, file);
    if (size > 0 && static_cast<std::size_t>(size) < sizeof out && access(out, X_OK) == 0) {
      return out;
    }
    at += at[n] == ':' ? n + 1 : n;
  }
  return nullptr;
}

void enter_sandbox() {
  for (int fd = 0; fd < table::highest(); ++fd) {
    if (table::kind_of(fd) == Kind::kUndecided) static_cast<void>(decide(fd, true));
  }
  stop_classifying();
  Channel::restrict_calls();
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
    if (result >= 0) note_borrowed(to, conn_here(from, g_borrowed.pid == getpid()));
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
    if (result >= 0) note_borrowed(to, conn_here(from, g_borrowed.pid == getpid()));
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
  if (is_channel(fd))
    make_relayed(fd, RelayStart::kNow);  // stdio reads and writes out of our sight
  return real().fdopen(fd, mode);
}

// A process that is about to be sandboxed, as sshd's: what is not known yet stays the kernel's,
// since finding out takes system calls that may end the process.
WEFT_EXPORT int prctl(int option, ...) {
  va_list arguments;
  va_start(arguments, option);
  unsigned long a[4];
  for (unsigned long& one : a) one = va_arg(arguments, unsigned long);
  va_end(arguments);
  if (option == PR_SET_SECCOMP) enter_sandbox();
  return static_cast<int>(syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]));
}

WEFT_EXPORT int execve(const char* path, char* const argv[], char* const envp[]) {
  before_exec(path, envp);
  return real().execve(path, argv, envp);
}

WEFT_EXPORT int execv(const char* path, char* const argv[]) {
  before_exec(path, environ);
  return real().execve(path, argv, environ);
}

WEFT_EXPORT int execvp(const char* file, char* const argv[]) {
  char found[PATH_MAX];
  before_exec(find_file(file, found), environ);
  return real().execvp(file, argv);
}

WEFT_EXPORT int execvpe(const char* file, char* const argv[], char* const envp[]) {
  char found[PATH_MAX];
  before_exec(find_file(file, found), envp);
  return real().execvpe(file, argv, envp);
}

WEFT_EXPORT int fexecve(int fd, char* const argv[], char* const envp[]) {
  before_exec(nullptr, envp);
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
  if (table::kind_of(from) == Kind::kUndecided) static_cast<void>(decide(from, true));
  if (is_channel(from)) make_relayed(from, RelayStart::kNow);
  static const auto next = reinterpret_cast<decltype(&posix_spawn_file_actions_adddup2)>(
      real_symbol("posix_spawn_file_actions_adddup2"));
  return next(actions, from, to);
}
