#include "check/module/time_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "os/clock.h"
#include "os/say.h"

namespace weft::check {

using timeline::Octets64;

namespace {

constexpr std::size_t kSrqOfQp = 3;  // of Made::parents

std::uint64_t now_ns() { return static_cast<std::uint64_t>(os::monotonic_ns()); }

// The length of a post is with its request; those of receives and of requests for an event are of
// no interest, and there are as many as completions.
bool has_record(std::string_view call) {
  static constexpr std::string_view kNone[] = {"ibv_post_send",     "ibv_wr_complete",
                                               "ibv_bind_mw",       "ibv_post_recv",
                                               "ibv_post_srq_recv", "ibv_req_notify_cq"};
  return std::ranges::find(kNone, call) == std::end(kNone);
}

// The call of the program that this thread is in. Names of calls are literals, and a thread makes
// the same one again and again.
struct Call {
  const char* name = nullptr;
  bool has_record = false;
  std::uint64_t began = 0;  // 0: it has no record
};
thread_local constinit Call in_call;

std::uint32_t this_thread() {
  static thread_local constinit std::uint32_t id = 0;
  if (id == 0) id = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return id;
}

}  // namespace

std::unique_ptr<TimeLog> TimeLog::open() {
  const char* const folder = std::getenv("WEFT_TIMELINE");
  if (folder == nullptr || *folder == '\0') return nullptr;
  if (access(folder, W_OK | X_OK) != 0) {
    os::say("weft: WEFT_TIMELINE: %s: %s\n", folder, std::strerror(errno));
    return nullptr;
  }
  return std::make_unique<TimeLog>(folder);
}

TimeLog::TimeLog(std::string folder) : files_(std::move(folder)), by_number_(files_) {}

std::shared_ptr<Follower> TimeLog::follow() { return by_number_.take(); }

std::shared_ptr<Follower> TimeLog::follow_receives() {
  return std::make_shared<ReceiveTimes>(files_);
}

TimeQueue* TimeLog::queue_of(const void* handle) {
  const os::MutexLock lock(mutex_);
  const auto found = queues_.find(handle);
  return found != queues_.end() ? found->second : nullptr;
}

void TimeLog::made(const Made& object) {
  if (object.follower == nullptr) return;
  const os::MutexLock lock(mutex_);
  if (object.kind == Kind::kSrq) {
    auto& times = static_cast<ReceiveTimes&>(*object.follower);
    shared_[object.handle] = times.shared_from_this();
  }
  if (object.kind != Kind::kQp) return;
  auto& queue = static_cast<TimeQueue&>(*object.follower);
  const auto shared = shared_.find(object.parents.at(kSrqOfQp));
  queue.made(object.number, shared != shared_.end() ? shared->second : nullptr);
  queues_[object.handle] = &queue;
  by_number_.add(queue);
}

void TimeLog::destroyed(const void* handle) {
  const os::MutexLock lock(mutex_);
  shared_.erase(handle);
  const auto found = queues_.find(handle);
  if (found == queues_.end()) return;
  by_number_.remove(found->second->number());
  found->second->destroyed();
  queues_.erase(found);
}

void TimeLog::late_receive(const void* qp, Late what) {
  if (what != Late::kBegins && what != Late::kLost) return;
  if (TimeQueue* const queue = queue_of(qp)) queue->late_receive(what);
}

void TimeLog::completed(const Completed& completion) {
  if (TimeQueue* const queue = by_number_.find(completion.qp_number)) queue->polled(completion);
}

void TimeLog::emptied(const void* qp) {
  if (TimeQueue* const queue = queue_of(qp)) queue->emptied();
}

void TimeLog::call_begins(const char* call) {
  TimeQueue::call_begins();
  if (call != in_call.name) in_call = {call, has_record(call)};
  in_call.began = in_call.has_record ? now_ns() : 0;
}

void TimeLog::call_ends(const char* call) {
  const std::uint64_t now = now_ns();
  const std::uint64_t began = in_call.began;
  if (began == 0) return TimeQueue::call_returns(now);
  timeline::Call out;
  out.thread = this_thread();
  out.start = began;
  out.duration = now - began;
  const std::string_view name = std::string_view(call).substr(0, out.name.size() - 1);
  std::ranges::copy(name, out.name.begin());
  files_.write(std::bit_cast<Octets64>(out));
}

}  // namespace weft::check
