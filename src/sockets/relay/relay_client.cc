#include "sockets/relay/relay_client.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/real_calls.h"

namespace weft::sockets {
namespace {

constexpr char kProgram[] = "weft-socket-relay";
constexpr int kRelayFd = 3;  // where the relay finds its socket
constexpr int kAnswerSeconds = 5;

struct Relay {
  Secret name{};
  bool known = false;
};
Relay g_relay;  // guarded by the table's mutex, which all callers hold

// Beside this library, unless WEFT_SOCKETS_RELAY names it.
bool program_path(char* out, size_t size) {
  if (const char* path = secure_getenv("WEFT_SOCKETS_RELAY"); path != nullptr && *path != '\0') {
    return static_cast<size_t>(std::snprintf(out, size, "%s", path)) < size;
  }
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&program_path), &info) == 0) return false;
  const char* slash = std::strrchr(info.dli_fname, '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash - info.dli_fname);
  return static_cast<size_t>(
             std::snprintf(out, size, "%.*s/%s", folder, info.dli_fname, kProgram)) < size;
}

// In a new process that shares nothing: system calls only, other threads may hold any lock.
[[noreturn]] void become_relay(int socket, const char* path, char* const* argv, char* const* envp) {
  syscall(SYS_setsid);
  // A grandchild: the program has no child it does not know of.
  if (syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr) != 0) syscall(SYS_exit_group, 0);
  if (socket == kRelayFd) {
    syscall(SYS_fcntl, socket, F_SETFD, 0);
  } else {
    syscall(SYS_dup3, socket, kRelayFd, 0);
  }
  syscall(SYS_execve, path, argv, envp);
  syscall(SYS_exit_group, 127);
  __builtin_unreachable();
}

// The program's environment without what would load this library into the relay, too.
char** relay_environment() {
  size_t count = 0;
  while (environ[count] != nullptr) ++count;
  auto** out = static_cast<char**>(std::calloc(count + 1, sizeof(char*)));
  if (out == nullptr) return nullptr;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::strncmp(environ[i], "LD_PRELOAD=", 11) != 0) out[kept++] = environ[i];
  }
  return out;
}

bool start_relay() {
  char path[4096];
  if (!program_path(path, sizeof path) || access(path, X_OK) != 0) return false;
  Secret name;
  if (getrandom(name.data(), name.size(), 0) != static_cast<ssize_t>(name.size())) return false;
  const int socket = real().socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  sockaddr_storage address{};
  const socklen_t length = relay_address(name, address);
  char program[] = "weft-socket-relay";
  char* argv[] = {program, nullptr};
  char** envp = relay_environment();
  bool done = envp != nullptr &&
              real().bind(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
              real().listen(socket, 128) == 0;
  if (done) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const long pid = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr);
    if (pid == 0) {
      // Signals are let through again by the relay itself.
      become_relay(socket, path, argv, envp);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    int status = 0;
    if (pid > 0) {
      while (waitpid(static_cast<pid_t>(pid), &status, __WALL) < 0 && errno == EINTR) {
      }
    }
    done = pid > 0;
  }
  std::free(envp);
  real().close(socket);
  if (done) {
    g_relay.name = name;
    g_relay.known = true;
  }
  return done;
}

int connect_to(const Secret& name) {
  sockaddr_storage address{};
  const socklen_t length = relay_address(name, address);
  const int fd = real().socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval limit{kAnswerSeconds, 0};
  real().setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  real().setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (real().connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  const int error = errno;
  real().close(fd);
  errno = error;
  return -1;
}

bool exchange(const Secret& name, const RelayRequest& request, const int* fds, int count, int* got,
              int most) {
  const int fd = connect_to(name);
  if (fd < 0) return false;
  RelayReply reply;
  int got_count = 0;
  ssize_t n = send_with_fds(fd, &request, sizeof request, fds, count);
  if (n > 0) n = receive_with_fds(fd, &reply, sizeof reply, got, most, got_count);
  // The relay has closed its copies of what it sent before it ends the connection. A copy that
  // lives on would keep a socket in the program's epoll instances after the program has closed it.
  std::uint8_t end = 0;
  if (n > 0 && got_count > 0) static_cast<void>(!real().recv(fd, &end, 1, 0));
  const int error = n < 0 ? errno : n != static_cast<ssize_t>(sizeof reply) ? EPROTO : reply.error;
  real().close(fd);
  if (error == 0 && got_count == most) return true;
  for (int i = 0; i < got_count; ++i) real().close(got[i]);
  errno = error != 0 ? error : EPROTO;
  return false;
}

}  // namespace

socklen_t relay_address(const Secret& name, sockaddr_storage& out) {
  auto* address = reinterpret_cast<sockaddr_un*>(&out);
  address->sun_family = AF_UNIX;
  char* at = address->sun_path + 1;
  std::memcpy(at, kRelayPrefix, sizeof kRelayPrefix - 1);
  at += sizeof kRelayPrefix - 1;
  constexpr char kDigits[] = "0123456789abcdef";
  for (const std::uint8_t octet : name) {
    *at++ = kDigits[octet >> 4U];
    *at++ = kDigits[octet & 0xfU];
  }
  return static_cast<socklen_t>(at - reinterpret_cast<char*>(address));
}

bool relay_name(Secret& out) {
  if (!g_relay.known && !start_relay()) return false;
  // It may have ended, having had nothing to do for a while.
  const int probe = connect_to(g_relay.name);
  if (probe >= 0) {
    real().close(probe);
  } else if (!start_relay()) {
    return false;
  }
  out = g_relay.name;
  return true;
}

bool ask_relay(const RelayRequest& request, const int* fds, int count) {
  Secret name;
  if (!relay_name(name)) return false;
  if (exchange(name, request, fds, count, nullptr, 0)) return true;
  return false;
}

bool claim_from(const Secret& relay, const RelayRequest& request, int (&fds)[2]) {
  return exchange(relay, request, nullptr, 0, fds, 2);
}

ssize_t send_with_fds(int fd, const void* data, size_t size, const int* fds, int count) {
  iovec part{const_cast<void*>(data), size};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(static_cast<size_t>(count) * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(static_cast<size_t>(count) * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds, static_cast<size_t>(count) * sizeof(int));
  }
  return real().sendmsg(fd, &message, MSG_NOSIGNAL);
}

ssize_t receive_with_fds(int fd, void* data, size_t size, int* fds, int most, int& count) {
  iovec part{data, size};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  count = 0;
  const ssize_t n = real().recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < got; ++i) {
      int one = -1;
      std::memcpy(&one, CMSG_DATA(c) + i * sizeof(int), sizeof one);
      if (count < most) {
        fds[count++] = one;
      } else {
        real().close(one);
      }
    }
  }
  return n;
}

}  // namespace weft::sockets
