// Tells the rules of `weft run --check` of objects, requests and completions. Nothing of this runs
// where `observer` (errors.h) is null.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <type_traits>

#include "check/observer.h"
#include "ibverbs/errors.h"
#include "ibverbs/objects.h"
#include "os/cancel.h"

namespace weft::ibverbs {

// This thread is in a function that no symbol names. A fork() in between, in the handler of a
// signal, leaves the child without an observer.
class InCall {
 public:
  explicit InCall(const char* name) : to_(observer) {
    if (to_ != nullptr) to_->in_call(name);
  }
  ~InCall() {
    if (to_ != nullptr) to_->in_call(nullptr);
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  check::Observer* const to_;
};

// A function of a table: a child of fork() has those of its parent's contexts, too.
inline void observe_heir(const void* handle, const char* call) {
  if (parents_observer != nullptr) parents_observer->inherited(handle, call);
}

[[nodiscard]] check::Made made_of(Context& context);
[[nodiscard]] check::Made made_of(Pd& pd);
[[nodiscard]] check::Made made_of(ThreadDomain& domain);
[[nodiscard]] check::Made made_of(Mr& mr);
[[nodiscard]] check::Made made_of(Mw& mw);
[[nodiscard]] check::Made made_of(Channel& channel);
[[nodiscard]] check::Made made_of(Cq& cq);
[[nodiscard]] check::Made made_of(Qp& qp);
[[nodiscard]] check::Made made_of(Srq& srq);
[[nodiscard]] check::Made made_of(Dm& dm);
[[nodiscard]] check::Made made_of(Ah& ah);

// The memory that a key of a region, or of a window that is bound, opens from now on.
void observe_key(Mr& mr);
void observe_key(const ibv_mw* mw, std::uint32_t key, const ibv_mw_bind_info& info);

// A new object. REQUIRES: there is an observer.
template <class T>
void observe_made(T& object) {
  observer->made(made_of(object));
  if constexpr (std::is_same_v<T, Mr>) observe_key(object);
}

// The end of an object without users, as Users::close().
template <class T>
[[nodiscard]] int close_users(T& object) {
  const int error = object.users.close();
  if (error == EBUSY && observer != nullptr) observer->busy(handle_of(object));
  return error;
}

// Tells of acknowledgments that a destroy call would wait for, unless they come within a second:
// the thread that took the event may be about to acknowledge it. `count` says how many are missing.
template <class Count>
void observe_owed(const void* handle, check::Owed what, Count count) {
  if (observer == nullptr) return;
  const os::NoCancel guard;
  constexpr int kLooks = 100;
  for (int look = 0; look < kLooks; ++look) {
    if (count() <= 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::int32_t owed = count();
  if (owed > 0) observer->owes(handle, what, static_cast<std::uint32_t>(owed));
}

// A function of the table of a destroyed object was called.
inline void observe_dead(const char* call, const void* handle) {
  if (observer == nullptr) return;
  const InCall in(call);
  observer->not_live(handle);
}

// Has the engine tell of messages that come before their receive, of memory that is refused, and of
// the steps of a queue pair that is about to be made.
void observe_engine(QpOptions& options, Qp& qp);
// A request of the ibv_wr_ builder, before it is posted. One that is to be lost becomes another.
void observe_request(Qp& qp, BuiltRequest& request);
// That of ibv_bind_mw, before it is posted.
void observe_bind(Qp& qp, const ibv_mw_bind& bind);
// A poll that is observed: until what it has got was told, no other thread polls this CQ. A child
// of fork() observes nothing, and may have the mutex of a thread that it does not have.
class ObservedPoll {
 public:
  explicit ObservedPoll(Cq& cq) WEFT_NOT_ANALYZED : of_(observer != nullptr ? &cq : nullptr) {
    if (of_ != nullptr) of_->observing.lock();
  }
  ~ObservedPoll() WEFT_NOT_ANALYZED {
    if (of_ != nullptr) of_->observing.unlock();
  }
  ObservedPoll(const ObservedPoll&) = delete;
  ObservedPoll& operator=(const ObservedPoll&) = delete;

 private:
  Cq* const of_;
};

// This thread is in what may have been promised to one, of this object; and not any more.
void enter(OneThread& what, const void* handle, const char* call);
void leave(OneThread& what);
class Alone {
 public:
  Alone(OneThread& what, const void* handle, const char* call) : what_(what) {
    enter(what, handle, call);
  }
  ~Alone() { leave(what_); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  OneThread& what_;
};

// Whether more completions were queued than the program asked for, and that some are polled now.
void observe_depth(Cq& cq);
inline void observe_poll(Cq& cq) {
  if (observer == nullptr) return;
  observe_depth(cq);
  observer->begins_poll();
}
// The program waits for an event of the channel, and there is none.
void observe_wait(Channel& channel);
// The completion queue makes none, until it is armed.
void event_is_not_due(Cq& cq);
// It takes one of this completion queue.
void observe_event(Cq& cq);

// `status`: what the program is told, which may become another one.
void observe_completion(const WorkCompletion& completion, ibv_wc_status& status);

// Puts functions that observe into the table of a context; and those of them that post.
void observe_operations(ibv_context_ops& ops);
void observe_posts(ibv_context_ops& ops);

// librdmacm's, once it is loaded: Hands::raise_cm.
extern constinit std::atomic<void (*)(int event)> raise_in_rdma_cm;

}  // namespace weft::ibverbs
