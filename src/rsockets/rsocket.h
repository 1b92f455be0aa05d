// An rsocket: a kernel TCP socket whose number the program sees, and an RsConnection over it.
//
// Addresses, options and errors of the TCP socket are the kernel's own. The data goes through the
// RsConnection. A datagram rsocket is a kernel UDP socket and nothing else: over iWARP rdma-core
// has none that could be talked to.
//
// Locking: Rsocket::mutex guards what follows it. It may be held while the engine is called; the
// engine never takes it (reports only write to an eventfd).
#pragma once

#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "os/fd.h"
#include "rsockets/rs_connection.h"
#include "rsockets/rs_incoming.h"
#include "rsockets/rs_lock.h"
#include "rsockets/rsocket_states.h"

namespace weft::rsockets {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // nothing: no limit

struct Rsocket;
using RsocketPtr = std::shared_ptr<Rsocket>;

struct Rsocket {
  int fd = -1;      // the program's number, or one of them
  int numbers = 1;  // guarded by the table of rsockets
  int type = SOCK_STREAM;
  int domain = AF_INET;
  os::Fd wake;  // eventfd: readable after a report of the engine, or a new connection to accept

  RsMutex mutex;
  RsState state = RsState::kOpen;  // on() writes it, nobody else
  bool nonblocking = false;
  bool read_shut = false;
  bool write_shut = false;
  bool reset_told = false;  // ECONNRESET has been returned
  int so_error = 0;
  std::uint64_t refused = 0;  // sends that found no room for all
  RsOptions options;
  // TCP_CORK and TCP_NODELAY as the program has set them. The socket below has the engine's.
  int corked = 0;
  int undelayed = 0;
  std::shared_ptr<RsConnection> link;

  // One thread at a time sleeps on the completion channel in a blocking call, and so runs the
  // connection: the driver. Events of the channel are its own; the other blocking calls wait for
  // it. Threads in rpoll() have a bell each, an eventfd that is raised whenever somebody else took
  // what may concern them.
  bool driving = false;
  bool sending = false;  // a blocking send has put a part in, and waits for room for the rest
  RsCondition progressed;
  std::vector<int> bells;

  // Connections of a listener: accepted and ready, oldest first. Filled by the service thread.
  struct Ready {
    os::Fd fd;  // closed in a child of fork(): not the program's number yet
    std::shared_ptr<RsConnection> link;
  };
  std::list<Ready> ready;
  bool listens = false;  // since rlisten(), also when it has closed
  std::size_t backlog = 0;
  bool full = false;  // the service thread waits for room in it

  // Follows the table of rsocket_states.h. False: that is not for this state, and nothing changes.
  [[nodiscard]] bool on(RsEvent event) { return follow(rsocket_arrows(), state, event); }
  // The same, for an event that this state has an arrow for.
  void advance(RsEvent event) { weft::advance(rsocket_arrows(), state, event); }
};

// The rsocket behind a number, or null with errno EBADF. In a child of fork() none of the parent's
// is one any more: the child can close their numbers by rclose(), and make its own. EDEADLK: this
// is a signal handler that has interrupted a call at work on it.
[[nodiscard]] RsocketPtr find_rsocket(int fd);
// This is a signal handler that has interrupted a call at work on an rsocket, or on their table.
[[nodiscard]] bool interrupts_rsockets() noexcept;
// Null with errno.
[[nodiscard]] RsocketPtr enter_rsocket(int fd, int domain, int type);
// The number is an ordinary one again; its socket stays open.
void leave_rsocket(int fd);
// `to`, a copy of the descriptor `from`, names its rsocket as well. False with errno.
[[nodiscard]] bool alias_rsocket(int from, int to);
// The process's device; null with errno.
[[nodiscard]] std::shared_ptr<Device> rsocket_device();

// --- with the mutex held ---

// Moves on with a connect that is under way. `state` says what came of it.
void advance_connect(Rsocket& socket);
// Sleeps until connecting, or answering a connect, has come to an end. 0, EAGAIN (the deadline),
// EINTR
[[nodiscard]] int await_connect(Rsocket& socket, Deadline deadline) WEFT_REQUIRES(socket.mutex);
// Takes what has arrived.
void progress(Rsocket& socket);
// Something has changed that another thread, asleep on this rsocket, may be waiting for.
void tell_others(Rsocket& socket);
// Sleeps until something may have changed. Afterwards `link` may be null: closed meanwhile.
//   0, or EAGAIN (the deadline), EINTR
[[nodiscard]] int sleep_for_change(Rsocket& socket, Deadline deadline) WEFT_REQUIRES(socket.mutex);
// The connection is over: nothing will come any more. Only meaningful once all is read.
[[nodiscard]] bool input_over(const Rsocket& socket);
// Why it is over, where it is not good order: an errno, once; later 0.
[[nodiscard]] int take_reset(Rsocket& socket);
[[nodiscard]] short ready_events(Rsocket& socket, short wanted);
// Before sleeping in poll(2) on the eventfd and the completion channel.
void arm(Rsocket& socket);

// Ends the connection: says goodbye, and sees to it that the peer's TCP gets all, for a bounded
// time. What a peer that is slow, or has stopped, has not taken at once a thread goes on with; the
// end of the program waits for that. `fd`: the program's, still open. Without the mutex.
enum class Goodbye : std::uint8_t {
  kInOrder,
  kReset,
  kAtExit,  // in order, all by the thread; `fd` stays open until wait_for_closings() returns
};
void close_connection(std::shared_ptr<RsConnection> link, int fd, Goodbye how);
// Until that thread is done.
void wait_for_closings();
// In a child of fork(): the parent's connections are not its own. Takes no lock.
void renew_closing();

// --- listening ---

// Begins to accept on a socket that listens; to be undone by stop_listening().
[[nodiscard]] bool start_listening(const RsocketPtr& socket);
void stop_listening(const RsocketPtr& socket);
// Where a listener was full: it has room again. Without its mutex.
void go_on_accepting();
// Answers the MPA Request that has come over an accepted socket, while the caller does other
// things: kConnecting, later kConnected or kFailed. False with errno: not begun.
[[nodiscard]] bool start_answering(const RsocketPtr& socket);
// In a child of fork(): a service of its own. Takes no lock.
void renew_service();

// This thread's bell; -1: it has none yet, or can't have one. Without the mutex.
[[nodiscard]] int own_bell();

// The program's options of a TCP socket that becomes an rsocket, which would hinder the engine
// there.
void take_over_options(Rsocket& socket);

// When a call that begins now is over by SO_RCVTIMEO or SO_SNDTIMEO, `name`.
[[nodiscard]] Deadline limit_from_now(const Rsocket& socket, int name);

}  // namespace weft::rsockets
