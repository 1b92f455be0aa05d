// Which user of this machine is at the other end of a TCP connection.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <optional>
#include <vector>

#include "base/time.h"

namespace weft::files {

// One thread.
class PeerUsers {
 public:
  // The user who made the client's socket of the connection between these two addresses, as this
  // process's user namespace calls them. The server's port does not count: what rdma_cm calls its
  // port need not be that of TCP. The server's end has one of the TCP ports on which this process
  // listens. Nothing where the client has no such connection (any more), or several, or the system
  // does not say. Costs some 10 us; a client whose connection has ended, a look at all descriptors
  // of the process, 100 ms after the last at the earliest.
  [[nodiscard]] std::optional<uid_t> user_of(const sockaddr* client, const sockaddr* server);

 private:
  [[nodiscard]] bool scan();

  std::vector<in_port_t> ports_;  // on which this process listens, as of the last scan
  Instant scanned_;
};

// The two ways of finding out, for tests; here the server's port counts. user_of() takes the first
// that answers.
[[nodiscard]] std::optional<uid_t> user_by_netlink(const sockaddr* client, const sockaddr* server);
[[nodiscard]] std::optional<uid_t> user_by_proc(const sockaddr* client, const sockaddr* server);

}  // namespace weft::files
