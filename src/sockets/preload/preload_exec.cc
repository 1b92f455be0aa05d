// exec, and children of vfork() on their way to it: what the next program inherits becomes an
// ordinary socket, which it can use with or without this library.
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/preload/preload_decide.h"
#include "sockets/preload/preload_exec.h"
#include "sockets/preload/preload_relay.h"
#include "sockets/preload/preload_setup.h"
#include "sockets/real_calls.h"

namespace weft::sockets {
namespace {

// Changes that a child of vfork() made to its descriptors. It shares its parent's memory, and the
// parent's table must not see them.
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

// Forgets what an earlier child has done.
void begin_borrowed() {
  if (g_borrowed.pid == getpid()) return;
  g_borrowed.pid = getpid();
  g_borrowed.count = 0;
}

// The connection behind a number: one that has a channel, or is not decided yet. `borrowed`: of a
// child of vfork(), which g_borrowed is about. Without the table's mutex, which another thread of
// the parent may have: it cannot let go of it for the child.
const Conn* conn_here(int fd, bool borrowed) WEFT_NOT_ANALYZED {
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

}  // namespace

bool borrowing() { return getpid() != g_pid; }

void own_memory() { g_pid = getpid(); }

void note_borrowed(int fd, const Conn* conn) {
  begin_borrowed();
  if (g_borrowed.count == Borrowed::kMost) return;
  g_borrowed.entries[g_borrowed.count].fd = fd;
  g_borrowed.entries[g_borrowed.count].conn = conn;
  ++g_borrowed.count;
}

const Conn* conn_now(int fd) { return conn_here(fd, g_borrowed.pid == getpid()); }

namespace {

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

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

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
  if (table::kind_of(from) == Kind::kChannel) make_relayed(from, RelayStart::kNow);
  static const auto next = reinterpret_cast<decltype(&posix_spawn_file_actions_adddup2)>(
      real_symbol("posix_spawn_file_actions_adddup2"));
  return next(actions, from, to);
}
