// The part of a process in `weft run --timeline DIR`: takes the times of what the program and the
// engine do, and writes records to files in DIR.
//
//   WEFT_TIMELINE=DIR
//
// Any thread. Each queue pair has a lock of its own; no other is taken with it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/module/record_file.h"
#include "check/observer.h"
#include "os/lock.h"
#include "timeline/queue_book.h"
#include "timeline/record.h"

namespace weft::check {

// When the receives of a queue were posted, oldest first.
class ReceiveTimes {
 public:
  void posted(std::uint64_t now);
  void refused(std::size_t count);
  // kNever: unknown.
  [[nodiscard]] std::uint64_t take();
  void clear();

 private:
  static constexpr std::size_t kMost = 1U << 16U;

  os::Mutex mutex_;
  std::deque<std::uint64_t> times_ WEFT_GUARDED_BY(mutex_);
};

class TimeLog {
 public:
  // Null: the variable is not set, or the folder cannot be written; that is said.
  [[nodiscard]] static std::unique_ptr<TimeLog> open();
  explicit TimeLog(std::string folder);
  ~TimeLog();
  TimeLog(const TimeLog&) = delete;
  TimeLog& operator=(const TimeLog&) = delete;

  // --- as Observer ---
  [[nodiscard]] std::shared_ptr<Follower> follow(const void* qp);
  void made(const Made& object);
  void destroyed(const void* handle);
  void posting(const Posted& request);
  void not_posted(const void* qp);
  void posting_receive(const void* queue);
  void not_posted_receive(const void* queue);
  void late_receive(const void* qp, Late what);
  void completed(const Completed& completion);
  void emptied(const void* qp);

  // A call of the program begins, and ends.
  void call_begins(const char* call);
  void call_ends(const char* call);

 private:
  class Queue;
  using QueueRef = std::shared_ptr<Queue>;
  using TimesRef = std::shared_ptr<ReceiveTimes>;

  [[nodiscard]] QueueRef queue_of(const void* handle);
  [[nodiscard]] TimesRef times_of(const void* queue);
  // Null: there can be none.
  [[nodiscard]] RecordFile* own_file();
  [[nodiscard]] RecordFile* take_file();
  void write(const timeline::Octets64& record);
  void write(std::vector<timeline::Record>& records);
  [[nodiscard]] std::uint32_t note_connection(int fd, std::uint32_t qp);
  [[nodiscard]] timeline::FileHeader header() const;
  [[nodiscard]] std::string file_name(std::size_t number) const;
  void give_back(RecordFile* file);
  static void thread_ends(void* of);

  const std::string folder_;
  const int process_;
  const std::int64_t began_;
  pthread_key_t key_{};  // of the file of a thread
  bool has_key_ = false;
  os::Mutex files_mutex_;
  std::vector<std::unique_ptr<RecordFile>> files_ WEFT_GUARDED_BY(files_mutex_);
  std::vector<RecordFile*> idle_ WEFT_GUARDED_BY(files_mutex_);  // their threads have ended
  std::unique_ptr<RecordFile> connections_ WEFT_GUARDED_BY(files_mutex_);
  bool connections_failed_ WEFT_GUARDED_BY(files_mutex_) = false;
  std::uint32_t connection_count_ WEFT_GUARDED_BY(files_mutex_) = 0;
  bool failed_ WEFT_GUARDED_BY(files_mutex_) = false;

  os::Mutex mutex_;  // of the tables
  std::unordered_map<const void*, QueueRef> queues_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<std::uint32_t, QueueRef> numbers_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<const void*, TimesRef> times_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::check
