#include "weft/common/read_all.h"

#include <unistd.h>

#include <array>
#include <cerrno>

namespace weft::cli {

std::optional<std::string> read_all(int fd, std::size_t most) {
  std::string out;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t got = read(fd, part.data(), part.size());
    if (got == 0) return out;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    out.append(part.data(), static_cast<std::size_t>(got));
    if (out.size() > most) {
      errno = EFBIG;
      return std::nullopt;
    }
  }
}

}  // namespace weft::cli
