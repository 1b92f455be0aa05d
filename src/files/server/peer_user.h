// Which user of this machine is at the other end of a TCP connection.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>

namespace weft::files {

// The user who made the client's socket of the connection between these two addresses, as this
// process's user namespace calls them. Nothing where there is no such connection (any more), or the
// system does not say. The server's port counts only where no descriptor of this process is the
// server's end: what rdma_cm calls its port need not be that of TCP.
[[nodiscard]] std::optional<uid_t> user_of_client(const sockaddr* client, const sockaddr* server);

// The two ways of finding out, for tests. `user_of_client` takes the first that answers.
[[nodiscard]] std::optional<uid_t> user_by_netlink(const sockaddr* client, const sockaddr* server);
[[nodiscard]] std::optional<uid_t> user_by_proc(const sockaddr* client, const sockaddr* server);

}  // namespace weft::files
