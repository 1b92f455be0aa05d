#include "sockets/socket_settings.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/guest_output.h"
#include "sockets/real_calls.h"

namespace weft::sockets {
namespace {

struct Settings {
  Rules rules;
  bool active = true;
  bool why = false;
  char program[64] = "";
  char mistake[512] = "";  // of the rule file
};

const Settings& settings() {
  static const Settings the = [] {
    Settings s;
    std::snprintf(s.program, sizeof s.program, "%s", program_invocation_short_name);
    const char* why = secure_getenv("WEFT_SOCKETS_WHY");
    s.why = why != nullptr && *why != '\0' && *why != '0';
    if (const char* path = secure_getenv("WEFT_SOCKETS_RULES"); path != nullptr && *path != '\0') {
      s.active = s.rules.load(path, s.mistake, sizeof s.mistake);
    }
    return s;
  }();
  return the;
}

// "ADDRESS:PORT", or "?".
void address_text(const sockaddr_storage& address, char* out, std::size_t size) {
  char host[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    std::snprintf(out, size, "%s:%u", host, ntohs(v4.sin_port));
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    std::snprintf(out, size, "[%s]:%u", host, ntohs(v6.sin6_port));
  } else {
    std::snprintf(out, size, "?");
  }
}

}  // namespace

void load_settings() { static_cast<void>(settings()); }

bool must_be_tcp(Role role, const sockaddr* address) {
  const Settings& s = settings();
  if (s.active) return s.rules.find(role, s.program, address) != nullptr;
  static std::atomic<bool> said{false};
  if (!said.exchange(true) && os::may_say()) {
    char line[600];
    const int n = std::snprintf(
        line, sizeof line, "weft: %s. All connections of this program are plain TCP.\n", s.mistake);
    if (n > 0) static_cast<void>(!real().write(2, line, static_cast<std::size_t>(n)));
  }
  return true;
}

void tell_why(int fd, const char* role, const char* path, const char* reason) {
  if (!settings().why || !os::may_say()) return;
  const int error = errno;
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  const bool there = real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
  // An rsocket says so before it connects. Others say nothing, unless they are connected.
  if (!there && std::strcmp(path, "rdma") != 0) {
    errno = error;
    return;
  }
  if (!there) peer = {};
  char text[80];
  address_text(peer, text, sizeof text);
  char line[400];
  const int n = std::snprintf(line, sizeof line, "weft: %s[%d] %s %s: %s: %s\n", settings().program,
                              getpid(), role, text, path, reason);
  if (n > 0) static_cast<void>(!real().write(2, line, static_cast<std::size_t>(n)));
  errno = error;
}

}  // namespace weft::sockets
