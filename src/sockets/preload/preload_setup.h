// How a TCP socket becomes the end of a channel.
//
// Threads: any.
#pragma once

#include "sockets/preload/socket_table.h"
#include "sockets/relay/relay_protocol.h"

namespace weft::sockets {

// A channel that is not in the place of any number yet.
struct Opened {
  Channel* channel = nullptr;
  int socket = -1;  // our end of the pair
  int flags = 0;    // of the TCP socket, before the relay made it its own: F_GETFL
  int error = 0;    // without a channel: why there is none, an errno
};
// Makes a channel whose other end goes to the relay, with the TCP socket. `greeting`: to be sent to
// the peer, or null.
[[nodiscard]] Opened channel_by_relay(int fd, RelayRequest request, const char* path,
                                      const Greeting* greeting);
// An accepted connection began with a greeting: its other end waits at the client's relay.
[[nodiscard]] Opened join_ring(int fd, const std::uint8_t* greeting);

// Puts the channel in the place of `fd` with replace_by_channel(), or releases it. False: there was
// none, or it was released.
bool install(int fd, Conn* conn, Opened opened) WEFT_REQUIRES(table::mutex());
// Puts the channel in the place of the TCP socket `fd`: same number, flags and watchers. False: all
// stays as it was, and the channel is the caller's still.
bool replace_by_channel(int fd, const Opened& opened, Conn* conn) WEFT_REQUIRES(table::mutex());

// With the table's mutex. The connection of a client is there: it takes the way that was chosen.
void upgrade_client(int fd, Conn* conn) WEFT_REQUIRES(table::mutex());
// With the table's mutex. It can't take that way: it stays TCP, or ends if it must not.
void give_up(int fd, const Conn& conn, const char* reason) WEFT_REQUIRES(table::mutex());

}  // namespace weft::sockets
