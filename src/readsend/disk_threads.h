// The disk by a pool of threads. What is in the page cache is read by the caller, at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/job_threads.h"
#include "readsend/disk.h"

namespace weft::readsend {

class ThreadDisk final : public Disk {
 public:
  static constexpr std::size_t kMaxThreads = 16;

  [[nodiscard]] static tl::expected<std::unique_ptr<Disk>, int> create(unsigned depth);
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
  static void carry_out(Job& job) noexcept;

  // Waits for what is under way when it goes; what no thread has begun is dropped.
  os::JobThreads<Job>::Ptr threads_ = os::JobThreads<Job>::make(kMaxThreads, carry_out);
};

}  // namespace weft::readsend
