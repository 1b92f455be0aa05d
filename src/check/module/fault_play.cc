#include "check/module/fault_play.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "check/module/output.h"
#include "check/module/process_name.h"
#include "os/say.h"

namespace weft::check {
namespace {

constexpr int kFlushed = 5;  // IBV_WC_WR_FLUSH_ERR

std::uint64_t queue_of(std::uint32_t qp, bool receive) {
  return std::uint64_t{qp} * 2 + (receive ? 1 : 0);
}

void send_signal(const faults::FaultPlayer::Signal& signal) {
  os::say("weft faults: line %d: this process gets %s\n", signal.line, sigabbrev_np(signal.signal));
  kill(getpid(), signal.signal);
}

}  // namespace

std::unique_ptr<FaultPlay> FaultPlay::open() {
  const char* text = std::getenv("WEFT_FAULTS_FILE");
  if (text == nullptr) return nullptr;
  auto file = faults::parse_faults(text);
  if (!file) {
    os::say("weft: WEFT_FAULTS_FILE: %s\n", file.error().c_str());
    return nullptr;
  }
  std::string words = command_line();
  while (words.ends_with('\0')) words.pop_back();
  std::ranges::replace(words, '\0', ' ');
  faults::FaultPlayer player(std::move(*file), rank_of_process(), words);
  return player.has_rules() ? std::make_unique<FaultPlay>(std::move(player)) : nullptr;
}

FaultPlay::FaultPlay(faults::FaultPlayer player) : player_(std::move(player)) {
  if (player_.next_signal()) signal_later();
}

std::chrono::nanoseconds FaultPlay::now() const {
  return std::chrono::nanoseconds(os::monotonic_ns() - began_ns_);
}

// A thread of its own, which sleeps until then: the program may make no call any more.
void FaultPlay::signal_later() const {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([player = player_, began_ns = began_ns_, process = getpid()]() mutable {
    while (const auto signal = player.next_signal()) {
      const auto left = signal->due - std::chrono::nanoseconds(os::monotonic_ns() - began_ns);
      std::this_thread::sleep_for(left);
      if (getpid() != process) return;
      player.signaled(*signal);
      send_signal(*signal);
    }
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  // Those are done there.
}

void FaultPlay::signal_if_due() {
  while (const auto signal = player_.next_signal()) {
    player_.signaled(*signal);
    // One by time is the other thread's.
    if (signal->by_rule) send_signal(*signal);
  }
}

void FaultPlay::say(const faults::Struck& struck, const char* call,
                    const std::vector<Frame>& frames) {
  os::say("weft faults: line %d: %s, call %llu of it, fails with %s\n  called at %s\n", struck.line,
          call, static_cast<unsigned long long>(struck.count), strerrorname_np(struck.error),
          places(frames, "\n         by ").c_str());
  signal_if_due();
}

void FaultPlay::made_qp(const void* handle, std::uint32_t number) {
  numbers_[handle] = number;
  emptied(handle);  // another one may have had this number
  player_.made_qp(number);
}

void FaultPlay::emptied(const void* handle) {
  const auto number = numbers_.find(handle);
  if (number == numbers_.end()) return;
  broken_.erase(queue_of(number->second, false));
  broken_.erase(queue_of(number->second, true));
}

Injected FaultPlay::completes(std::uint32_t qp, bool receive) {
  if (broken_.contains(queue_of(qp, receive))) return {kFlushed, false};
  const auto struck = player_.completes(qp, receive, now());
  if (!struck) return {};
  broken_.insert(queue_of(qp, receive));
  os::say("weft faults: line %d: queue pair number %u: completion %llu of a %s ends with %s\n",
          struck->line, qp, static_cast<unsigned long long>(struck->count),
          receive ? "receive" : "send request",
          std::string(faults::status_name(struck->error)).c_str());
  signal_if_due();
  return {struck->error, true};
}

}  // namespace weft::check
