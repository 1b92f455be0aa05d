// The settings WEFT_SOCKETS_RULES and WEFT_SOCKETS_WHY of this process.
//
// Threads: any.
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "sockets/socket_rules.h"

namespace weft::sockets {

// Reads them, which allocates memory: at the start of the process, since a signal handler may need
// them first.
void load_settings();

// Whether a rule says that this connection, or listener, is plain TCP: the address is the peer's of
// a connection that this process began, else its own. So it is where the rule file has a mistake.
[[nodiscard]] bool must_be_tcp(Role role, const sockaddr* address);

// Says on stderr which path the connection `fd` takes, and why, if WEFT_SOCKETS_WHY asks for it.
// `role`: connect or accept.
void tell_why(int fd, const char* role, const char* path, const char* reason);

}  // namespace weft::sockets
