// The signal mask of threads that Weft starts in somebody else's program.
//
// Header only, over the standard libraries alone: the libraries that start threads share no other
// layer that knows an operating system.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace weft::os {

// The signals that an instruction of a thread itself raises. SIGABRT is none of them: abort() opens
// it without help, and a program may block it everywhere and take it by sigwait().
inline constexpr int kRaisedByInstructions[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

// From now on this thread blocks the signals that are the application's business, beside those that
// it blocked before: the result.
inline sigset_t block_signals() noexcept {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&before);
  sigfillset(&blocked);
  for (const int number : kRaisedByInstructions) sigdelset(&blocked, number);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  return before;
}

// While it lives, this thread blocks the signals that are the application's business, beside those
// that it blocked before.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept : before_(block_signals()) {}
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Starts a thread that blocks the application's signals. Throws as std::thread does.
//
// Signals that an instruction of the thread raises are open in it. The kernel ends a program that
// blocks them when they come, even if it has a handler; and programs do handle SIGSEGV: they
// write-protect memory to learn who writes to it, also memory that is registered for RDMA. The
// thread opens them itself: in the caller that would deliver a signal that the caller blocks.
template <class Run>
[[nodiscard]] std::thread start_thread(Run run) {
  const SignalsBlocked blocked;
  return std::thread([run = std::move(run)] {
    sigset_t raised;
    sigemptyset(&raised);
    for (const int number : kRaisedByInstructions) sigaddset(&raised, number);
    pthread_sigmask(SIG_UNBLOCK, &raised, nullptr);
    run();
  });
}

}  // namespace weft::os
