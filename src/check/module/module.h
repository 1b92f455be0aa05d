// libweft-check.so: what libibverbs.so.1 loads under `weft run --check`. It feeds the rules with
// what the drop-in libraries observe, adds where in the program it was, and prints what they find.
//
//   WEFT_CHECK=on            loads it (src/ibverbs/observed.cc)
//   WEFT_CHECK_REPORT=DIR    findings go to a file in DIR, not to stderr
//   WEFT_CHECK_EXIT=N        the exit status in place of 0 when there were findings of rules E or W
//   WEFT_CHECK_SUPPRESS=FILE a line each: rule, and a pattern for a function of the program
//   WEFT_CHECK_ALSO=RULES    that are off otherwise, with commas
//   WEFT_CHECK_HANG=MS       when nothing completes for so long: N70
//   WEFT_FAULTS_NTH=N        of `weft faults sweep`: the N-th call fails (fault_record.h)
//   WEFT_FAULTS_FILE=TEXT    of `weft run --faults` (fault_play.h); without WEFT_CHECK=on no
//   findings
//   WEFT_TIMELINE=DIR        of `weft run --timeline` (time_log.h); the same
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check/check_rules.h"
#include "check/module/fault_play.h"
#include "check/module/fault_record.h"
#include "check/module/frames.h"
#include "check/module/observe.h"
#include "check/module/reports.h"
#include "check/module/time_log.h"
#include "check/module/time_queue.h"
#include "check/preload/memory_watch.h"
#include "os/lock.h"

namespace weft::check {

inline thread_local constinit const char* calling = nullptr;
inline thread_local constinit const void* explained =
    nullptr;                                       // where the call is whose handle E02 was about
inline thread_local constinit int calls_open = 0;  // of those that may fail, one in another
inline thread_local constinit const char* outermost = nullptr;  // the first of them
inline thread_local constinit std::uint64_t posted = 0;         // the number of the last request
inline thread_local constinit std::uint64_t last_octets = 0;
inline thread_local constinit std::uint64_t last_at = 0;
inline thread_local constinit bool last_signaled = false;
inline thread_local constinit const void* refused_by = nullptr;  // the last request, this one
inline thread_local constinit const void* exceeded = nullptr;    // more than was asked for is in it
inline thread_local constinit std::uint64_t behind = 0;          // Rules::Poll
inline thread_local constinit const void* may_lose =
    nullptr;  // the queue pair of the last one that could be lost
inline thread_local constinit bool loses_it = false;  // it is
inline thread_local constinit bool forks = false;     // with the mutex

inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

class Module final : public Observer {
 public:
  explicit Module(const Hands& hands);

  void in_call(const char* name) override { calling = name; }
  Failing may_fail(const char* call, const void* qp, const Listed& list) override {
    if (calls_open++ > 0) return {};
    outermost = call;
    with_times([&] { times_->call_begins(call); });
    const int error = faults_ != nullptr ? count_call(call) : 0;
    return error != 0 ? Failing{error} : play_call(call, qp, list);
  }
  [[nodiscard]] bool wants_octets() const override {
    return play_ != nullptr && play_->wants_octets();
  }
  void is_over() override {
    if (--calls_open != 0) return;
    if (const void* const queue = std::exchange(exceeded, nullptr))
      without_place([&] { rules_.returned(queue, thread()); });
    with_times([&] { times_->call_ends(outermost); });
    outermost = nullptr;
  }
  void made(const Made& object) override {
    static const int at_exit = std::atexit(look_no_more);
    static_cast<void>(at_exit);
    with_place([&](Here here) { rules_.made(object, here); });
    with_play([&] { play_->made(object); });
    with_times([&] { times_->made(object); });
  }
  void destroyed(const void* handle) override {
    with_place([&](Here here) { rules_.destroyed(handle, here); });
    with_play([&] { play_->destroyed(handle); });
    with_times([&] { times_->destroyed(handle); });
  }
  void closing(const void* context, const Unread& left) override {
    with_place([&](Here here) { rules_.closing(context, left, here); });
  }
  void keyed(const Keyed& key) override {
    with_place([&](Here here) { rules_.keyed(key, here); });
  }
  void invalidated(std::uint32_t key, bool by_peer) override {
    with_place([&](Here here) { rules_.invalidated(key, by_peer, here); });
  }
  void refused(const Refused& what) override {
    // One that is lost on purpose names no memory.
    place_is_known([&] {
      if (play_ == nullptr || what.to_peer || !play_->has_lost(what.qp)) rules_.refused(what);
    });
  }
  void accessed(const Accessed& what) override {
    if (wants_accesses_.load(std::memory_order_relaxed))
      place_is_known([&] { rules_.accessed(what); });
  }
  void not_live(const void* handle) override {
    with_place([&](Here here) {
      explained = rules_.not_live(handle, here) ? reports_.calling_address(here.at) : nullptr;
    });
  }
  void inherited(const void* handle, const char* call) override {
    if (!may_look_back()) return;
    with_place([&](Here here) {
      rules_.inherited(handle, {call != nullptr ? call : here.call, here.at});
    });
  }
  void failed(int error) override {
    const void* const refused = std::exchange(refused_by, nullptr);
    // Not a failure: not yet, or an empty place of a table of GIDs (ENODATA).
    if (error == EAGAIN || error == EINTR || error == EINPROGRESS || error == ENODATA) return;
    with_place([&](Here here) {
      // The error of a call that E02 has explained.
      const void* const told = std::exchange(explained, nullptr);
      if (told != nullptr && told == reports_.calling_address(here.at)) return;
      const char* name = strerrorname_np(error);
      rules_.failed(error, name != nullptr ? name : "?", here, refused);
    });
  }
  void busy(const void* handle) override {
    with_place([&](Here here) { rules_.busy(handle, here); });
  }
  void owes(const void* handle, Owed what, std::uint32_t count) override {
    with_place([&](Here here) { rules_.owes(handle, what, count, here); });
  }
  void posting(const Posted& request) override {
    may_lose = refused_by = nullptr;
    last_octets = request.bytes;
    last_signaled = request.signaled;
    if (wants_octets()) with_play([&] { last_at = play_->posting(request); });
    if (request.follower != nullptr) with_times([&] { request.follower->posting(request); });
    // It is looked at later, when the program is elsewhere.
    if (!request.sources.empty() || hang_limit_.count() > 0)
      return with_place([&](Here here) { tell_posting(request, here); });
    without_place([&] { tell_posting(request, {"", 0}); });
  }
  void not_posted(const void* qp) override {
    refused_by = qp;
    without_place([&] { rules_.not_posted(qp, posted); });
    if (wants_octets()) with_play([&] { play_->refused(qp, last_octets, last_at, last_signaled); });
    if (std::exchange(may_lose, nullptr) == qp) with_play([&] { play_->not_posted(qp, loses_it); });
    with_times([] { TimeQueue::last_not_posted(); });
  }
  void refuses_batch(const void* qp) override {
    refused_by = qp;
    without_place([&] { rules_.not_posted(qp, 0); });
  }
  void emptied(const void* qp) override {
    with_place([&](Here here) { rules_.emptied(qp, here); });
    with_play([&] { play_->emptied(qp); });
    with_times([&] { times_->emptied(qp); });
  }
  std::shared_ptr<Follower> follow() override {
    std::shared_ptr<Follower> out;
    with_times([&] { out = times_->follow(); });
    return out;
  }
  std::shared_ptr<Follower> follow_receives() override {
    std::shared_ptr<Follower> out;
    with_times([&] { out = times_->follow_receives(); });
    return out;
  }
  void reads_undefined(const void* cq, const char* call, const char* status,
                       bool success) override {
    with_place([&](Here here) { rules_.reads_undefined(cq, {call, here.at}, status, success); });
  }
  void overflows(const void* cq, std::size_t queued, std::uint32_t asked) override {
    with_place([&](Here here) { rules_.overflows(cq, queued, asked, here); });
  }
  void armed(const void* cq, std::size_t queued) override {
    with_place([&](Here here) { rules_.armed(cq, queued, thread(), here); });
  }
  void polls(const void* cq) override {
    without_place([&] { rules_.polls(cq, thread()); });
  }
  void entered_twice(const void* handle, const char* call) override {
    with_place([&](Here here) { rules_.entered_twice(handle, {call, here.at}); });
  }
  void waits(const void* channel, std::size_t armed) override {
    with_place([&](Here here) { rules_.waits(channel, armed, thread(), here); });
  }
  void took_event(const void* cq) override {
    with_place([&](Here here) { rules_.took_event(cq, thread(), here); });
  }
  void posting_receive(const PostedReceive& receive) override {
    if (receive.follower != nullptr) with_times([&] { receive.follower->posting_receive(); });
    if (wants_octets()) with_play([&] { play_->posting_receive(receive); });
    if (waiting_.load(std::memory_order_relaxed) || hang_limit_.count() > 0)
      return with_place([&](Here here) { tell_posting_receive(receive, here); });
    without_place([&] { tell_posting_receive(receive, {"", 0}); });
  }
  void not_posted_receive(const PostedReceive& receive) override {
    without_place([&] { rules_.not_posted_receive(receive); });
    if (wants_octets()) with_play([&] { play_->refused_receive(receive); });
    if (receive.follower != nullptr) with_times([&] { receive.follower->not_posted_receive(); });
  }
  void late_receive(const void* qp, Late what, std::uint64_t waited_ns) override {
    with_times([&] { times_->late_receive(qp, what); });
    place_is_known([&] {
      rules_.late_receive(qp, what, waited_ns);
      waiting_.store(rules_.awaits_receive(), std::memory_order_relaxed);
    });
  }
  bool loses(const void* qp, std::uint64_t wr_id) override {
    loses_it = false;
    with_play([&] {
      loses_it = play_->loses(qp, wr_id);
      may_lose = qp;
    });
    return loses_it;
  }
  int inject(const Polled& completion) override {
    int out = 0;
    with_play([&] { out = play_->completes(completion); });
    return out;
  }
  InjectedCm inject_cm(int event) override {
    InjectedCm out;
    with_play([&] { out = play_->fetches(event); });
    return out;
  }
  // Its rules are told of by a thread that holds nothing.
  LinkTrouble link(const void* qp, const std::string& peer) override {
    LinkTrouble out;
    FaultPlay::LinkOwner of;
    with_play(
        [&] {
          out = play_->link(qp, peer);
          of = play_->owner_of(qp);
        },
        true);
    out.on_rule = [this, of](const LinkRule& rule, std::uint64_t octet, bool possible) {
      with_play([&] { play_->link_struck(of, rule, octet, possible); });
    };
    return out;
  }
  bool delays_receives() override { return play_ != nullptr && play_->delays_receives(); }
  std::chrono::nanoseconds receive_late(const void* qp) override {
    std::chrono::nanoseconds out{0};
    with_play([&] { out = play_->receive_late(qp); }, true);
    return out;
  }
  void begins_poll() override { behind = rules_.posts(); }
  void completed(const Completed& completion) override {
    with_times([&] { times_->completed(completion); });
    without_place([&] { rules_.completed(completion, {"", 0}, {thread(), behind}); });
  }

  // The program gives memory back: perhaps in the midst of a call of its own with a lock, so the
  // rules are not waited for.
  void gone(const void* address, std::size_t length);
  void owned(const Octets& memory, bool is_own);
  // Once main is over, destructors give the program's memory back while its queue pairs are there.
  static void look_no_more();
  void unwatch_memory() {
    if (memory_ != nullptr) __atomic_store_n(&memory_->gone, nullptr, __ATOMIC_RELEASE);
  }
  void watch_memory(weft_memory_watch& watch, void (*tell)(const void*, std::size_t),
                    void (*tell_owned)(const void*, std::size_t, int)) {
    memory_ = &watch;
    __atomic_store_n(&watch.gone, tell, __ATOMIC_RELEASE);
    __atomic_store_n(&watch.owned, tell_owned, __ATOMIC_RELEASE);
  }

  // Around fork(), by its thread: a child has the rules whole. Where another thread has them for
  // long, the child has none.
  void before_fork() WEFT_NOT_ANALYZED;
  void after_fork(bool in_child) WEFT_NOT_ANALYZED;

  // At exit; returns the status to leave with.
  int end(int status);

 private:
  // Each of these three tells the rules something; where there are none, nothing is done.
  template <class Tell>
  void with_place(Tell tell) {
    if (!has_rules_) return;
    observe([&] {
      Caller caller = look_back();
      const std::string call = name_of(caller);
      const os::MutexLock lock(mutex_);
      lazy_ = false;
      tell(Here{call, reports_.remember(std::move(caller.trace))});
      tell_watched();
    });
  }
  // On the data path the place is found only for what is reported.
  template <class Tell>
  void without_place(Tell tell) {
    if (!has_rules_) return;
    observe([&] {
      const os::MutexLock lock(mutex_);
      lazy_ = true;
      tell();
      tell_watched();
    });
  }
  // The mutex is held.
  void tell_posting(const Posted& request, Here here) {
    posted = rules_.posting(request, here, thread());
    if (rules_.exceeds()) exceeded = request.qp;
  }
  void tell_posting_receive(const PostedReceive& receive, Here here) {
    rules_.posting_receive(receive, here, thread());
    if (rules_.exceeds()) exceeded = receive.queue;
  }
  // To who looks at what the program gives back.
  void tell_watched() WEFT_REQUIRES(mutex_) {
    if (memory_ == nullptr) return;
    const auto [low, high] = rules_.watched();
    __atomic_store_n(&memory_->low, low, __ATOMIC_RELAXED);
    __atomic_store_n(&memory_->high, high, __ATOMIC_RELAXED);
  }

  // The errno that this one fails with, or 0.
  int count_call(const char* call);

  // The same by the rules of a file.
  Failing play_call(const char* call, const void* qp, const Listed& list) {
    Failing out;
    with_play([&] {
      const auto caller = []() -> const void* {
        const std::vector<void*> trace = look_back().trace;
        return trace.empty() ? nullptr : trace.front();
      };
      out = play_->call(call, qp, list, caller,
                        [] { return program_frames(look_back().trace, kShownFrames); });
    });
    return out;
  }

  // The work decides with the mutex; what it orders is done without it. `in_engine`: by somebody
  // else, since the caller has locks of the engine.
  template <class Work>
  void with_play(Work work, bool in_engine = false) {
    if (play_ == nullptr) return;
    observe([&] {
      std::vector<FaultPlay::Order> orders;
      {
        const os::MutexLock lock(mutex_);
        work();
        orders = play_->take_orders();
      }
      if (in_engine) return obey_later(hands_, std::move(orders));
      for (const FaultPlay::Order& order : orders) obey(hands_, order);
    });
  }
  // No lock of this class, and nothing here is a cancellation point: files are opened with a
  // NoCancel.
  template <class Work>
  void with_times(Work work) {
    if (times_ == nullptr || inside) return;
    inside_once(work);
  }

  // In the thread for what comes at a time.
  void act(const FaultPlay::Action& action) {
    with_play([&] { play_->act(action); });
  }

  // The findings name an earlier place.
  template <class Tell>
  void place_is_known(Tell tell) {
    if (!has_rules_) return;
    observe([&] {
      const os::MutexLock lock(mutex_);
      lazy_ = false;
      tell();
    });
  }

  // In a child of fork(), with its parent's rules. Another thread of the parent perhaps had the
  // lock of the loader then, which nobody gives back in the child: to find a place would wait for
  // good.
  [[nodiscard]] bool may_look_back();
  // It says what the process leaves behind.
  void tell_end(int status);

  // The libraries are asked without the mutex: they have locks of their own.
  void look_for_hangs();

  // By another thread, for a while: this one may be in the handler of a signal, and have locks of
  // the libraries.
  [[nodiscard]] Rules::Unreads find_unread(std::vector<Rules::Watched> of) const;

  // False: a thread that writes a finding waits for its reader, perhaps for ever.
  bool lock_soon() WEFT_TRY_ACQUIRE(true, mutex_);

  static Rules::Thread thread() { return reinterpret_cast<Rules::Thread>(&calling); }

  static std::string name_of(const Caller& caller) {
    if (calling != nullptr) return calling;
    if (!caller.call.empty()) return caller.call;
    return outermost != nullptr ? outermost : "a verbs call";  // by a table, without a symbol
  }

  // The mutex is held: the rules are only called with it.
  void place(Finding& finding);
  void report(const Finding& found);

  const Hands hands_;
  os::Mutex mutex_;
  Reports reports_;  // as rules_
  const int exit_status_;
  const pid_t process_ = getpid();
  bool has_tried_ = false;                     // may_look_back(), in this child
  bool is_heir_ = false;                       // a child of fork(), with its parent's rules
  const bool has_rules_;                       // else there are only faults
  const std::unique_ptr<FaultRecord> faults_;  // null: no sweep
  const std::unique_ptr<FaultPlay> play_;      // null: no file of faults for this process
  const std::unique_ptr<TimeLog> times_;       // null: no timeline
  std::atomic<bool> waiting_{false};           // posted receives are of interest
  std::atomic<bool> wants_accesses_{false};    // and so is what peers do with memory
  weft_memory_watch* memory_ = nullptr;        // null: nobody looks
  const std::chrono::milliseconds hang_limit_{std::atoi(variable("WEFT_CHECK_HANG").c_str())};
  bool is_over_ WEFT_GUARDED_BY(mutex_) = false;
  bool lazy_ = false;
  Rules rules_;
};

}  // namespace weft::check
