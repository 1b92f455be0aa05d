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
[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) noexcept {
  const int error = errno;
  char line[2048];
  va_list values;
  va_start(values, format);
  const int size = std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  if (size > 0) {
    const std::size_t whole =
        std::min<std::size_t>(static_cast<std::size_t>(size), sizeof line - 1);
    static_cast<void>(!::write(STDERR_FILENO, line, whole));
  }
  errno = error;
}

}  // namespace weft::os
