#include "sockets/preload/preload_settings.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "sockets/preload/socket_list.h"
#include "sockets/real_calls.h"

namespace weft::sockets {

const Settings& settings() {
  static const Settings the = [] {
    Settings s;
    std::snprintf(s.program, sizeof s.program, "%s", program_invocation_short_name);
    const char* why = secure_getenv("WEFT_SOCKETS_WHY");
    s.why = why != nullptr && *why != '\0' && *why != '0';
    if (const char* path = secure_getenv("WEFT_SOCKETS_RULES"); path != nullptr && *path != '\0') {
      char text[512];
      if (!s.rules.load(path, text, sizeof text)) {
        std::fprintf(stderr, "weft: %s. All connections of this program are plain TCP.\n", text);
        s.active = false;
      }
    }
    return s;
  }();
  return the;
}

bool preload_active() { return settings().active; }

void tell_why(const char* role, const sockaddr* address, const char* path, const char* reason) {
  const Settings& s = settings();
  if (!s.why) return;
  char text[80];
  address_text(address, text, sizeof text);
  char line[400];
  const int n = std::snprintf(line, sizeof line, "weft: %s[%d] %s %s: %s: %s\n", s.program,
                              getpid(), role, text, path, reason);
  const int error = errno;
  if (n > 0) static_cast<void>(!real().write(2, line, static_cast<size_t>(n)));
  errno = error;
}

void note_path(int fd, const char* role, const sockaddr* address, const char* path,
               const char* reason) {
  tell_why(role, address, path, reason);
  list::note(fd, role, address, path, reason);
}

}  // namespace weft::sockets
