// A bad link for datagrams (<weft/link.h>): they leave later, slower, or not at all. For tests.
//
// Any thread. That of LinkPump sends what is due; the process waits for it at its end.
#pragma once

#include <sys/socket.h>
#include <weft/link.h>

#include <memory>

namespace weft::io {

class DatagramLink {
 public:
  virtual ~DatagramLink() = default;
  // Takes a datagram, by copy. One for which there is no room, or no memory, is lost.
  virtual void send(const msghdr& message) = 0;
};

// A link for a socket, which may be closed while something is under way. Null: the link is good, or
// there is no descriptor for it. Throws std::bad_alloc.
[[nodiscard]] std::shared_ptr<DatagramLink> make_datagram_link(LinkTrouble trouble, int socket);

}  // namespace weft::io
