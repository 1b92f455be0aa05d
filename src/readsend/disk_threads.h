// The disk by a pool of threads. What is in the page cache is read by the caller, at once.
#pragma once

#include <deque>
#include <thread>
#include <vector>

#include "os/lock.h"
#include "readsend/disk.h"

namespace weft::readsend {

class ThreadDisk final : public Disk {
 public:
  static constexpr std::size_t kMaxThreads = 16;

  [[nodiscard]] static tl::expected<std::unique_ptr<Disk>, int> create(unsigned depth);
  // Waits for what is under way; what no thread has begun is dropped.
  ~ThreadDisk() override;
  ThreadDisk(const ThreadDisk&) = delete;
  ThreadDisk& operator=(const ThreadDisk&) = delete;

  void read(int fd, void* to, std::uint32_t bytes, std::uint64_t offset, Waiter& waiter) override;
  void write(int fd, const void* from, std::uint32_t bytes, std::uint64_t offset,
             Waiter& waiter) override;
  void sync(int fd, Waiter& waiter) override;
  std::size_t progress() override;

 private:
  enum class Kind : std::uint8_t { kRead, kWrite, kSync };
  struct Job {
    Kind kind = Kind::kSync;
    int fd = -1;
    void* at = nullptr;
    std::uint32_t bytes = 0;
    std::uint64_t offset = 0;
    Waiter* waiter = nullptr;
    std::int64_t result = 0;
  };

  explicit ThreadDisk(unsigned depth) : Disk(depth, Engine::kThreads) {}
  static void carry_out(Job& job);
  void hand_over(Job job);
  void add_done(const Job& job);
  void work();

  std::vector<std::thread> threads_;  // started as they are needed
  os::Mutex mutex_;
  os::Condition has_job_;
  std::deque<Job> jobs_ WEFT_GUARDED_BY(mutex_);
  std::vector<Job> done_ WEFT_GUARDED_BY(mutex_);
  std::size_t idle_ WEFT_GUARDED_BY(mutex_) = 0;  // threads that wait for a job
  bool ends_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::readsend
