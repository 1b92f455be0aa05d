// The log of the process: one line per event, to stderr or a file.
//
// Any thread. A line that is not wanted costs one relaxed load. Levels mean frequency: kError and
// kWarning at most a few in the life of a healthy process, kInfo once per connection, kDebug once
// per message, kTrace more often. A line that there is no memory for is lost, and nothing else.
#pragma once

#include <fmt/format.h>
#include <weft/config.h>

#include <atomic>
#include <string>

#include "base/result.h"

namespace weft::os {

namespace detail {
extern std::atomic<LogLevel> g_log_level;
void write_log(LogLevel level, fmt::string_view format, fmt::format_args values) noexcept;
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
  detail::write_log(level, format, fmt::make_format_args(args...));
}

}  // namespace weft::os
