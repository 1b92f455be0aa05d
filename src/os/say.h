// A line on stderr for what happens before a configuration says where the log goes (os/log.h), or
// in a library that has no log. Any thread.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace weft::os {

// One system call, so that lines of several threads stay whole. Longer lines are cut. Leaves errno
// alone.
[[gnu::format(printf, 1, 0)]] inline void say_values(const char* format, va_list values) noexcept {
  const int error = errno;
  char line[2048];
  const int size = std::vsnprintf(line, sizeof line, format, values);
  if (size > 0) {
    const std::size_t whole =
        std::min<std::size_t>(static_cast<std::size_t>(size), sizeof line - 1);
    static_cast<void>(!::write(STDERR_FILENO, line, whole));
  }
  errno = error;
}

[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) noexcept {
  va_list values;
  va_start(values, format);
  say_values(format, values);
  va_end(values);
}

}  // namespace weft::os
