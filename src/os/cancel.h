// Threads that are cancelled (pthread_cancel) inside a call of Weft.
//
// A cancelled thread ends at its next cancellation point: most system calls that can block, and
// waits on condition variables. The stack is unwound, which std::terminate() ends at the first
// noexcept function, and what the call had begun stays half done. So Weft has cancellation points
// only where a call sleeps until something happens. There no lock is held, and what the sleeper
// counted is taken back by destructors. All other system calls are made
//
//   by os/calls.h       on the way of data: these cost nothing more
//   under a NoCancel    elsewhere: it costs two atomic operations
//
// Cancellation of the asynchronous type is not safe in Weft, as in the C library.
#pragma once

#include <pthread.h>

#include <utility>

namespace weft::os {

// While it lives the calling thread is not cancelled. These nest.
class NoCancel {
 public:
  NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() {
    int disabled = 0;
    pthread_setcancelstate(before_, &disabled);
  }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Returns the result of `call`, called under a NoCancel. errno stays as `call` left it.
template <class Call>
decltype(auto) uncancelled(Call&& call) {
  const NoCancel guard;
  return std::forward<Call>(call)();
}

}  // namespace weft::os
