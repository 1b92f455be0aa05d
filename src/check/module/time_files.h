// Where the records of `weft run --timeline` go: a file for each thread, and one for the
// connections of the process. A thread that ends leaves its file to another one.
//
// Any thread. Its locks are for files that are opened, and are leaves.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "check/module/record_file.h"
#include "os/lock.h"
#include "timeline/record.h"

namespace weft::check {

class TimeFiles {
 public:
  using Records = std::vector<timeline::Record>;

  explicit TimeFiles(std::string folder);
  ~TimeFiles();
  TimeFiles(const TimeFiles&) = delete;
  TimeFiles& operator=(const TimeFiles&) = delete;

  // All that a thread has.
  struct Own {
    TimeFiles* files = nullptr;
    RecordFile* file = nullptr;
    Records* records = nullptr;
    bool busy = false;
  };

  // A thread does one thing with times at a time: where the handler of a signal comes in
  // between, it gets none. The records that were left are written at its end, so no lock that was
  // taken meanwhile is held for it.
  class Turn {
   public:
    explicit Turn(TimeFiles& files);
    ~Turn() {
      if (own_ == nullptr) return;
      if (!own_->records->empty()) files_.write_all(*own_->records);
      own_->busy = false;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return own_ != nullptr; }
    [[nodiscard]] Records& records() const { return *own_->records; }

   private:
    TimeFiles& files_;
    Own* own_ = nullptr;
  };

  // A record that is not timeline::Record.
  void write(const timeline::Octets64& record);
  // Returns its number.
  [[nodiscard]] std::uint32_t note_connection(int fd, std::uint32_t qp);

 private:
  void write_all(Records& records) noexcept;
  [[nodiscard]] RecordFile* own_file();  // null: there can be none
  [[nodiscard]] RecordFile* take_file();
  [[nodiscard]] timeline::FileHeader header() const;
  [[nodiscard]] std::string file_name(std::size_t number) const;
  void give_back(RecordFile* file);
  // Records that got no file. Their number is in the report where the process has any file.
  void count_lost(std::size_t records) WEFT_REQUIRES(mutex_);
  void lose(std::size_t records) noexcept;
  static void thread_ends(void* of);

  const std::string folder_;
  const int process_;
  const std::int64_t began_;
  pthread_key_t key_{};  // of what a thread has
  bool has_key_ = false;
  os::Mutex mutex_;
  std::vector<std::unique_ptr<RecordFile>> files_ WEFT_GUARDED_BY(mutex_);
  std::vector<RecordFile*> idle_ WEFT_GUARDED_BY(mutex_);  // their threads have ended
  std::unique_ptr<RecordFile> connections_ WEFT_GUARDED_BY(mutex_);
  bool connections_failed_ WEFT_GUARDED_BY(mutex_) = false;
  std::uint32_t connection_count_ WEFT_GUARDED_BY(mutex_) = 0;
  bool failed_ WEFT_GUARDED_BY(mutex_) = false;
  std::uint64_t lost_ WEFT_GUARDED_BY(mutex_) = 0;
  RecordFile* told_ WEFT_GUARDED_BY(mutex_) = nullptr;  // that says how many
};

}  // namespace weft::check
