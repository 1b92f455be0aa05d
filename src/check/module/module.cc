#include "check/module/module.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "check/module/hang_watch.h"
#include "check/module/own_thread.h"
#include "check/module/sum.h"
#include "faults/fallible_calls.h"
#include "os/clock.h"

namespace weft::check {

Module::Module(const Hands& hands)
    : hands_(hands),
      reports_(variable("WEFT_CHECK_SUPPRESS"), variable("WEFT_CHECK_REPORT")),
      exit_status_(std::atoi(variable("WEFT_CHECK_EXIT").c_str())),
      has_rules_(variable("WEFT_CHECK") == "on"),
      faults_(FaultRecord::open(variable("WEFT_CHECK_REPORT"))),
      play_(FaultPlay::open()),
      times_(TimeLog::open()),
      rules_([this](const Finding& finding) { report(finding); },
             [this](Finding& finding) { place(finding); }, sum_of,
             [this](const void* qp) { return hands_.unread(qp, Kind::kQp).broken; }) {
  static_cast<void>(look_back());  // the first time may load a library
  if (play_ != nullptr) play_->start([this](const FaultPlay::Action& action) { act(action); });
  std::istringstream also(variable("WEFT_CHECK_ALSO"));
  for (std::string rule; std::getline(also, rule, ',');) static_cast<void>(rules_.turn_on(rule));
  wants_accesses_.store(rules_.wants_accesses());
  if (hang_limit_.count() > 0 && has_rules_)
    look_now_and_then(hang_limit_, [this] { look_for_hangs(); });
}

void Module::gone(const void* address, std::size_t length) {
  if (getpid() != process_) return;
  const Octets memory{reinterpret_cast<std::uintptr_t>(address), length};
  observe([&] {
    if (!rules_.may_use(memory) || !lock_soon()) return;
    {
      const os::MutexLock lock(mutex_, std::adopt_lock);
      if (rules_.is_free(memory)) return;
    }
    Caller caller = look_back();
    const std::string call = name_of(caller);
    if (!lock_soon()) return;
    const os::MutexLock lock(mutex_, std::adopt_lock);
    if (rules_.is_free(memory)) return;  // completed meanwhile
    lazy_ = false;
    rules_.gone(memory, Here{call, reports_.remember(std::move(caller.trace))});
  });
}

void Module::owned(const Octets& memory, bool is_own) {
  if (getpid() != process_) return;
  with_place([&](Here here) {
    is_own ? rules_.owns(memory, here) : rules_.releases(memory);
    wants_accesses_.store(rules_.wants_accesses(), std::memory_order_relaxed);
  });
}

int Module::end(int status) {
  if (getpid() == process_) {
    tell_end(status);
  } else if (!is_heir_) {
    return status;  // the mutex may be held, and the findings are the parent's
  }
  return status == 0 && exit_status_ != 0 && reports_.is_serious() ? exit_status_ : status;
}

void Module::tell_end(int status) {
  observe([&] {
    if (!lock_soon()) return;
    std::vector<Rules::Watched> holders;
    {
      const os::MutexLock lock(mutex_, std::adopt_lock);
      holders = rules_.may_have_unread();
    }
    const Rules::Unreads unread = find_unread(std::move(holders));
    if (!lock_soon()) return;
    const os::MutexLock lock(mutex_, std::adopt_lock);
    lazy_ = false;
    is_over_ = true;
    rules_.ended(unread);
    if (faults_ != nullptr) faults_->ended(status, reports_.placed(rules_.left()));
    if (play_ != nullptr) play_->ended();
  });
}

// In between nothing is observed: other handlers around fork() may call verbs.
void Module::before_fork() {
  if (!has_rules_ || inside) return;
  const os::NoCancel guard;
  forks = inside = lock_soon();
}

void Module::after_fork(bool in_child) {
  if (in_child) {
    is_heir_ = forks;
    has_tried_ = false;
    if (forks) reports_.begin_anew();
  }
  if (!std::exchange(forks, false)) return;
  mutex_.unlock();
  inside = false;
}

Rules::Unreads Module::find_unread(std::vector<Rules::Watched> of) const {
  if (of.empty()) return {};
  const auto found = answer_soon([ask = hands_.unread, of = std::move(of)] {
    Rules::Unreads out;
    observe([&] {
      for (const Rules::Watched& one : of) out[one.handle] = ask(one.handle, one.kind);
    });
    return out;
  });
  return found.value_or(Rules::Unreads{});
}

bool Module::may_look_back() {
  if (!is_heir_ || std::exchange(has_tried_, true)) return is_heir_;
  is_heir_ = false;
  observe([&] {
    const auto looked = answer_soon([] {
      return dl_iterate_phdr([](dl_phdr_info*, std::size_t, void*) { return 1; }, nullptr);
    });
    is_heir_ = looked.has_value();
  });
  return is_heir_;
}

int Module::count_call(const char* call) {
  int error = 0;
  observe([&] {
    Caller caller;
    if (faults_->by_place()) caller = look_back();
    const os::MutexLock lock(mutex_);
    if (!faults_->next(reports_.remember(std::move(caller.trace)))) return;
    const int wanted = faults::error_of(call);
    if (faults_->failing(call, wanted, program_frames(look_back().trace, kShownFrames)))
      error = wanted;
  });
  return error;
}

void Module::look_for_hangs() {
  if (getpid() != process_) return;
  observe([&] {
    const auto limit = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(hang_limit_).count());
    std::vector<Rules::Watched> hung;
    if (!lock_soon()) return;
    {
      const os::MutexLock lock(mutex_, std::adopt_lock);
      if (is_over_) return;
      hung = rules_.hung(static_cast<std::uint64_t>(os::monotonic_ns()), limit);
    }
    Rules::Looks looks;
    for (const Rules::Watched& one : hung) looks[one.handle] = hands_.look(one.handle, one.kind);
    if (hung.empty() || !lock_soon()) return;
    const os::MutexLock lock(mutex_, std::adopt_lock);
    lazy_ = false;
    rules_.hangs(limit, looks);
  });
}

bool Module::lock_soon() {
  constexpr int kLooks = 100;
  for (int look = 0; look < kLooks; ++look) {
    if (mutex_.try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

void Module::place(Finding& finding) WEFT_NOT_ANALYZED {
  if (!lazy_ || finding.at != 0) return;
  Caller caller = look_back();
  finding.call = name_of(caller);
  finding.at = reports_.remember(std::move(caller.trace));
}

void Module::report(const Finding& found) WEFT_NOT_ANALYZED {
  Finding finding = found;
  place(finding);
  reports_.add(finding);
}

namespace {

Module* module = nullptr;  // never destroyed: programs destroy objects in their last destructors

void at_exit(int status, void*) {
  const int wanted = module->end(status);
  // Where it is called by a handler, it goes on with those that are left, in the C library of
  // Linux.
  if (wanted != status) std::exit(wanted);
}

void memory_gone(const void* address, std::size_t length) { module->gone(address, length); }

void memory_owned(const void* address, std::size_t length, int is_own) {
  module->owned({reinterpret_cast<std::uintptr_t>(address), length}, is_own != 0);
}

}  // namespace

void Module::look_no_more() { module->unwatch_memory(); }

}  // namespace weft::check

extern "C" __attribute__((visibility("default"))) weft::check::Observer* weft_check_open(
    const weft::check::Hands* hands) {
  static std::once_flag once;
  std::call_once(once, [&] {
    weft::check::module = new weft::check::Module(*hands);
    on_exit(weft::check::at_exit, nullptr);
    pthread_atfork([] { weft::check::module->before_fork(); },
                   [] { weft::check::module->after_fork(false); },
                   [] { weft::check::module->after_fork(true); });
    auto* const watch = static_cast<weft_memory_watch*>(dlsym(RTLD_DEFAULT, "weft_memory_watch"));
    if (watch == nullptr) return;
    weft::check::module->watch_memory(*watch, weft::check::memory_gone, weft::check::memory_owned);
  });
  return weft::check::module;
}
