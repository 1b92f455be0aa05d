#include "ibverbs/shake_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/cancel.h"
#include "os/fd.h"
#include "os/guest_output.h"

namespace weft::ibverbs {

constinit bool logs_shaking = false;

namespace {

// A log that is read by people, and read again by --replay.
constexpr unsigned kMostLines = 10'000;

const char* log_path = nullptr;
std::atomic<unsigned> lines_written{0};
std::atomic<bool> failed{false};

bool put(const char* line, std::size_t size) {
  // Opened for each: programs close descriptors that are not theirs.
  const os::Fd file(::open(log_path, O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file) return false;
  const bool fits = os::fits(file.get(), size);
  errno = fits ? ENOSPC : EFBIG;  // where a part of it has no room, too
  return fits && ::write(file.get(), line, size) == static_cast<ssize_t>(size);
}

}  // namespace

void start_shake_log() {
  log_path = std::getenv("WEFT_SHAKE_RECORD");
  logs_shaking = log_path != nullptr && log_path[0] != '\0';
  static_cast<void>(os::may_say());
}

void shake_log(const char* format, ...) noexcept {
  const unsigned number = lines_written.fetch_add(1);
  if (number > kMostLines) return;
  const os::NoCancel guard;
  const int error = errno;
  std::array<char, 256> line{};
  int size = std::snprintf(line.data(), line.size(), "# shake, process %d: ", getpid());
  const auto used = static_cast<std::size_t>(size);
  if (number == kMostLines) {
    size += std::snprintf(line.data() + used, line.size() - used, "and so on; no more lines\n");
  } else {
    va_list values;
    va_start(values, format);
    size += std::vsnprintf(line.data() + used, line.size() - used, format, values);
    va_end(values);
  }
  const bool good = put(line.data(), std::min(static_cast<std::size_t>(size), line.size() - 1));
  if (!good && !failed.exchange(true))
    os::tell_user("weft: %s: %s; the log is not whole\n", log_path, std::strerror(errno));
  errno = error;
}

}  // namespace weft::ibverbs
