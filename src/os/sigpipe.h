// Calls that raise SIGPIPE, and have no flag against it, without it.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace weft::os {

// Returns what `call` returns, with its errno. A SIGPIPE that it raises in this thread is taken
// away. One that waited before stays.
template <class Call>
auto without_sigpipe(Call call) {
  sigset_t pipe;
  sigset_t before;
  sigset_t waiting;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  sigpending(&waiting);
  const auto result = call();
  const int error = errno;
  if (sigismember(&waiting, SIGPIPE) == 0) {
    constexpr timespec kNow{};
    siginfo_t info{};
    int taken = 0;
    do {
      taken = sigtimedwait(&pipe, &info, &kNow);
    } while (taken < 0 && errno == EINTR);
    if (taken == SIGPIPE && info.si_pid != getpid()) raise(SIGPIPE);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return result;
}

}  // namespace weft::os
