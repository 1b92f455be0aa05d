// Output of a library in the midst of a program that does not know of it. Any thread.
#pragma once

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>

#include "os/say.h"

namespace weft::os {

[[nodiscard]] inline bool stderr_is_socket() noexcept {
  struct stat is {};
  return ::fstat(STDERR_FILENO, &is) == 0 && S_ISSOCK(is.st_mode);
}

// False: a program that has closed stderr has a connection of its own there, perhaps. It was none
// when this was asked first, which is to be when the library is loaded.
[[nodiscard]] inline bool may_say() {
  static const bool was_socket = stderr_is_socket();
  return was_socket || !stderr_is_socket();
}

// As say(), where that may be.
[[gnu::format(printf, 1, 2)]] inline void tell_user(const char* format, ...) noexcept {
  if (!may_say()) return;
  va_list values;
  va_start(values, format);
  say_values(format, values);
  va_end(values);
}

// Whether the limit on the size of files, beyond which SIGXFSZ ends the program, lets so much in.
[[nodiscard]] inline bool fits(int fd, std::size_t octets) noexcept {
  rlimit most{};
  struct stat is {};
  if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return true;
  if (::fstat(fd, &is) != 0 || !S_ISREG(is.st_mode)) return true;
  return static_cast<rlim_t>(is.st_size) + octets <= most.rlim_cur;
}

}  // namespace weft::os
