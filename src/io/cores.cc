#include "io/cores.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "io/cancel.h"

namespace weft::io {

Cores::Cores()
    : load_(uncancelled([] { return ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC); })),
      online_(static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)))) {}

std::optional<bool> Cores::are_enough() const {
  std::array<char, 64> text;
  const NoCancel guard;
  const ssize_t size = load_ ? ::pread(load_.get(), text.data(), text.size(), 0) : -1;
  if (size <= 0) return std::nullopt;
  const auto running = running_threads({text.data(), static_cast<std::size_t>(size)});
  if (!running) return std::nullopt;
  return *running <= online_;
}

std::optional<unsigned> running_threads(std::string_view loadavg) {
  for (int column = 0; column < 3; ++column) {
    const std::size_t space = loadavg.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    loadavg.remove_prefix(space + 1);
  }
  unsigned running = 0;
  const char* const end = loadavg.data() + loadavg.size();
  const auto [rest, error] = std::from_chars(loadavg.data(), end, running);
  if (error != std::errc() || rest == end || *rest != '/' || running == 0) return std::nullopt;
  return running;
}

}  // namespace weft::io
