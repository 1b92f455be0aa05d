// The part of a process in `weft run --timeline DIR`: takes the times of what the program and the
// engine do, and writes records to files in DIR.
//
//   WEFT_TIMELINE=DIR
//
// Any thread. Its own lock is for objects that are made and destroyed: posts and polls use that of
// their queue (time_queue.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "check/module/time_files.h"
#include "check/module/time_queue.h"
#include "check/observer.h"
#include "os/lock.h"

namespace weft::check {

class TimeLog {
 public:
  // Null: the variable is not set, or the folder cannot be written; that is said.
  [[nodiscard]] static std::unique_ptr<TimeLog> open();
  explicit TimeLog(std::string folder);

  // --- as Observer; what it is told of one queue goes to its Follower ---
  [[nodiscard]] std::shared_ptr<Follower> follow();
  [[nodiscard]] std::shared_ptr<Follower> follow_receives();
  void made(const Made& object);
  void destroyed(const void* handle);
  void late_receive(const void* qp, Late what);
  void completed(const Completed& completion);
  void emptied(const void* qp);

  // A call of the program begins, and ends.
  void call_begins(const char* call);
  void call_ends(const char* call);

 private:
  [[nodiscard]] TimeQueue* queue_of(const void* handle);

  TimeFiles files_;
  TimeQueues by_number_;
  os::Mutex mutex_;
  // Their queue pairs own them.
  std::unordered_map<const void*, TimeQueue*> queues_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<const void*, std::shared_ptr<ReceiveTimes>> shared_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::check
