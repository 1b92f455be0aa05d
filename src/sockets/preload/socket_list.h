// The sockets of a process under Weft, for `weft stat --sockets`: one record for each connection,
// in a memory file that the process keeps open and others of the same user may read.
//
//   socket_list.cc        the process writes: when a connection is decided, never with its data
//   socket_list_read.cc   `weft stat` reads, and trusts nothing that it finds there
//
// A record names its socket by inode. So nothing has to be done when a socket is closed, copied or
// inherited: the reader compares with /proc/PID/fd.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::sockets {

struct SocketRecord {
  std::atomic<std::uint64_t> inode;  // 0: no record. Written last
  char role[16];                     // connect, accept, listen, inherited
  char path[8];                      // ring, rdma, tcp, relay
  char local[64];
  char peer[64];
  char reason[96];
};
static_assert(sizeof(SocketRecord) == 256);

inline constexpr char kSocketListLabel[] = "weft-sockets-list";
inline constexpr int kSocketListMost = 16384;  // descriptor numbers above it are not shown

namespace list {

// `fd` goes `path`, for `reason`; `peer` may be null. Nothing happens where no memory or descriptor
// is left for it. REQUIRES: the table's mutex is held; not in a child of vfork().
void note(int fd, const char* role, const sockaddr* peer, const char* path, const char* reason);
// Another socket has come to the number `fd`, of the same connection. As above.
void renumber(int fd);
// After fork(), in the child: its list is its own from the next note() on.
void in_child();

}  // namespace list

// "ADDRESS:PORT", or "?".
void address_text(const sockaddr* address, char* out, std::size_t size);

}  // namespace weft::sockets
