// The signal mask of threads that Weft starts in somebody else's program.
//
// Header only, over the C library alone: the libraries that start threads share no other layer that
// knows an operating system.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace weft::os {

// While it lives, this thread blocks the signals that are the application's business. A thread
// inherits the mask of the one that starts it: make this object, start the thread, let it go.
//
// Signals that an instruction of the thread itself raises stay unblocked. The kernel ends a program
// that blocks them when they come, even if it has a handler; and programs do handle SIGSEGV: they
// write-protect memory to learn who writes to it, also memory that is registered for RDMA.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&blocked, raised);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace weft::os
