// Sockets for holders that can't be followed.
//
// Threads: any.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "sockets/preload/socket_table.h"

namespace weft::sockets {

// When a relay begins to take octets: at once, or when its holder first touches the socket.
enum class RelayStart : std::uint8_t { kNow, kOnTouch };
// For a holder that we can't follow (another program, stdio): an ordinary socket which a process of
// its own relays to and from the channel, whose descriptor here is `number`. -1 with errno.
int relayed_copy(Channel* channel, int number, RelayStart start);
// The number `fd` becomes such a socket itself, and with it the other numbers of its connection.
bool make_relayed(int fd, RelayStart start);
// This process is about to use `fd`: if it is such a socket, its relay begins.
void begin_relayed(int fd);

// The names that a relayed socket carries for its holder.
bool names_of_relayed(int fd, sockaddr_storage& local, socklen_t& local_length,
                      sockaddr_storage& peer, socklen_t& peer_length);

}  // namespace weft::sockets
