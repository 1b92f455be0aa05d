// Asking a relay process. It is started when it is first needed, by the user who needs it.
#pragma once

#include "sockets/relay/relay_protocol.h"

namespace weft::sockets {

// The name of this process's relay, which is started if there is none. False: there can't be one.
[[nodiscard]] bool relay_name(Secret& out);
// Hands over copies of descriptors with a request.   False with errno.
[[nodiscard]] bool ask_relay(const RelayRequest& request, const int* fds, int count);
// Gets the two descriptors of a deposit from the relay of another process.
[[nodiscard]] bool claim_from(const Secret& relay, const RelayRequest& request, int (&fds)[2]);

[[nodiscard]] socklen_t relay_address(const Secret& name, sockaddr_storage& out);

// One message with descriptors. -1 with errno.
ssize_t send_with_fds(int fd, const void* data, size_t size, const int* fds, int count);
ssize_t receive_with_fds(int fd, void* data, size_t size, int* fds, int most, int& count);

}  // namespace weft::sockets
