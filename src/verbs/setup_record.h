// How the set-ups of a device's connections ended: counted, and for the log. Any thread.
#pragma once

#include <weft/config.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/time.h"
#include "os/lock.h"

namespace weft::verbs {

class SetupRecord {
 public:
  void note_opened() noexcept { opened_.fetch_add(1, std::memory_order_relaxed); }
  // Warnings have a limit for each second, so that no scanner fills the disk.
  void note_refused(LogLevel level, std::string_view who, std::string_view why);
  [[nodiscard]] std::uint64_t opened() const noexcept {
    return opened_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t refused() const noexcept {
    return refused_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> opened_{0}, refused_{0};
  os::Mutex mutex_;
  Instant second_began_ WEFT_GUARDED_BY(mutex_){};
  std::uint32_t lines_ WEFT_GUARDED_BY(mutex_) = 0;
  std::uint32_t silent_ WEFT_GUARDED_BY(mutex_) = 0;  // refused without a line
};

}  // namespace weft::verbs
