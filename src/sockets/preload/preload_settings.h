// The settings WEFT_SOCKETS_RULES and WEFT_SOCKETS_WHY, and which path each connection took.
//
// Threads: any.
#pragma once

#include <sys/socket.h>

#include "sockets/preload/socket_rules.h"

namespace weft::sockets {

struct Settings {
  Rules rules;
  bool active = true;
  bool why = false;
  char program[64] = "";
};

[[nodiscard]] const Settings& settings();
// Off for programs that the rules leave out altogether.
[[nodiscard]] bool preload_active();

// Says on stderr why a connection took which path, if WEFT_SOCKETS_WHY asks for it.
void tell_why(const char* role, const sockaddr* address, const char* path, const char* reason);
// ... and notes it for `weft stat`. REQUIRES: as list::note() of socket_list.h.
void note_path(int fd, const char* role, const sockaddr* address, const char* path,
               const char* reason);

}  // namespace weft::sockets
