// TCP sockets as Weft uses them: non-blocking, close-on-exec, closed in children of fork().
//
// Free functions over descriptors; any thread. What a socket is for decides its options: paths that
// stay inside the machine get a congestion control that does not pace.
#pragma once

#include <weft/address.h>
#include <weft/config.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "os/fd.h"

namespace weft::io {

// The Error that an errno of a socket call means. Never fails: what is not listed is kSystem.
[[nodiscard]] Error error_from_errno(int error) noexcept;

//   kSystem   no descriptors;  kUnsupported   the machine lacks this address family
[[nodiscard]] Result<os::Fd> open_socket(int family);

//   kAddressInUse, kPermission, kInvalidArgument (not an address of this machine), kSystem
[[nodiscard]] Status bind_socket(int fd, const SocketAddress& local, bool reuse_address,
                                 bool v6_only);
// As many connections wait in the kernel's queue as net.core.somaxconn lets.
[[nodiscard]] Status listen_socket(int fd);

// Begins to connect; the outcome shows as EPOLLOUT, then take_error().
//   as error_from_errno(), if it fails at once
[[nodiscard]] Status begin_connect(int fd, const SocketAddress& peer);
// Whether the outcome is there already.
[[nodiscard]] bool is_connect_over(int fd);
// Whom it has reached; AF_UNSPEC: it has failed, see take_error(). Empty: it is not over.
[[nodiscard]] std::optional<SocketAddress> reached_peer(int fd);
// Takes a connect that failed back, so that it can begin anew, from `bound` again if bind_socket()
// has been called.   as error_from_errno()
[[nodiscard]] Status undo_connect(int fd, const SocketAddress& bound);
// The pending error of the socket, and clears it. Success: none.
[[nodiscard]] Status take_error(int fd);

// The next connection waiting on a listening socket.
//   kTimedOut        none waits
//   kLimitExceeded   this process may open no more descriptors
//   kNoSpace         the machine has no descriptors or memory: try again later
//   kConnectionLost  it was gone already: go on
[[nodiscard]] Result<os::Fd> accept_socket(int fd, SocketAddress& peer);
// Whether one waits. Needs no descriptor.
[[nodiscard]] bool connection_waits(int fd);
// The kernel's queue of a listening socket is half full or more: soon it would drop what comes.
[[nodiscard]] bool queue_is_long(int fd);

// Makes a TCP socket that was opened elsewhere fit: non-blocking, close-on-exec, closed in children
// of fork().
//   kInvalidArgument   not a TCP socket
[[nodiscard]] Status prepare_adopted(int fd);

// Options that must be there before the handshake (buffers decide the window scale), and no delay.
void tune_before_connect(int fd, const Config& config);
// IP_TOS or IPV6_TCLASS, by what the socket is. A refusal by the kernel is no error.
void set_traffic_class(int fd, std::uint8_t value);
// The rest: no delay, keepalive probes, congestion control. Refusals by the kernel are not errors.
// Returns the congestion control that it has set; "": the system's.
std::string_view tune_connected(int fd, const Config& config, bool loopback);
// The same in two halves: what the sockets that accept_socket() gives inherit from their listener,
// and what depends on the path.
void tune_listening(int fd, const Config& config);
std::string_view tune_accepted(int fd, const Config& config, bool loopback);
// Keepalive probes, for a peer that may be silent for `limit`; 0: none. Four system calls, which a
// connection that is over soon need not make.
void keep_alive(int fd, Duration limit);
// How long a peer with keepalive probes of this limit may be silent: the limit, or what one probe
// takes where the limit is shorter.
[[nodiscard]] Duration keepalive_limit(Duration limit);

[[nodiscard]] SocketAddress local_address(int fd);
[[nodiscard]] SocketAddress peer_address(int fd);
// Both ends on this machine: a loopback address, or the peer's address is our own.
[[nodiscard]] bool is_loopback_path(const SocketAddress& local, const SocketAddress& peer);

[[nodiscard]] std::string congestion_control(int fd);  // the one in use; "" if unknown
// Octets of data in one full TCP segment now: the MSS less the options of every segment.
[[nodiscard]] std::uint32_t effective_mss(int fd);
// Octets sent and not yet acknowledged (kSent minus kAcked).
[[nodiscard]] std::uint32_t unacknowledged(int fd);

// Closes with a reset, at once and for good, even if a child of fork() still holds the socket.
void close_with_reset(os::Fd fd);

}  // namespace weft::io
