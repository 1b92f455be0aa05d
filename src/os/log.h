// The log of the process: one line per event, to stderr or a file.
//
// Any thread. A line that is not wanted costs one relaxed load. Levels mean frequency: kError and
// kWarning at most a few in the life of a healthy process, kInfo once per connection, kDebug once
// per message, kTrace more often.
#pragma once

#include <fmt/format.h>
#include <weft/config.h>

#include <atomic>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace weft::os {

namespace detail {
extern std::atomic<LogLevel> g_log_level;
void write_log(LogLevel level, std::string_view text);
}  // namespace detail

// Where the lines go from now on, for the whole process. `file` "": stderr; "%p" is the process id.
//   kSystem   the file cannot be opened; nothing changed
[[nodiscard]] Status configure_log(LogLevel level, const std::string& file);

[[nodiscard]] inline bool log_enabled(LogLevel level) noexcept {
  return level <= detail::g_log_level.load(std::memory_order_relaxed);
}

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (!log_enabled(level)) return;
  detail::write_log(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft::os
