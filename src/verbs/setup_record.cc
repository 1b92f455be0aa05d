#include "verbs/setup_record.h"

#include "os/clock.h"
#include "os/log.h"

namespace weft::verbs {

namespace {
constexpr std::uint32_t kLinesMax = 10;
constexpr Duration kSecond{1'000'000'000};
}  // namespace

void SetupRecord::note_refused(LogLevel level, std::string_view who, std::string_view why) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  if (!os::log_enabled(level)) return;
  if (level != LogLevel::kWarning) {
    os::log(level, "set-up with {} ended: {}", who, why);
    return;
  }
  const os::MutexLock lock(mutex_);
  const Instant now = os::now();
  if (now - second_began_ >= kSecond) {
    if (silent_ != 0) os::log(LogLevel::kWarning, "{} more set-ups refused", silent_);
    second_began_ = now;
    lines_ = silent_ = 0;
  }
  if (lines_ == kLinesMax) {
    ++silent_;
    return;
  }
  ++lines_;
  os::log(LogLevel::kWarning, "set-up with {} refused: {}", who, why);
}

}  // namespace weft::verbs
