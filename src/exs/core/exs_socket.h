// A socket: what the calls of the API see. What moves its bytes is a Provider: RDMA or TCP.
//
// Everything here needs the socket's mutex, but for what is constant or atomic. Order of locks: the
// engine's take-in lock or drive lock, then a socket's mutex, then a queue's. No thread holds two
// sockets' mutexes.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/exs.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "exs/core/exs_address.h"
#include "exs/core/exs_backlog.h"
#include "exs/core/exs_cm_channel.h"
#include "exs/core/exs_messages.h"
#include "exs/core/exs_operations.h"
#include "exs/core/exs_socket_end.h"
#include "exs/core/exs_states.h"
#include "exs/core/operation.h"
#include "os/lock.h"

namespace weft::exs {

class Socket;
struct PollWait;

// Moves the bytes of one socket. All calls with the socket's mutex.
class Provider {
 public:
  virtual ~Provider() = default;

  // 0 or an errno. The outcome of connect() is reported by Socket::connected().
  virtual int bind(const Address& address) = 0;
  virtual int listen(int backlog) = 0;
  virtual int connect(const Address& address) = 0;
  virtual int local(Address& out) const = 0;
  virtual int peer(Address& out) const = 0;

  // Operations have been appended to the socket's lists.
  virtual void sends_posted() = 0;
  virtual void receives_posted() = 0;
  virtual void accepts_posted() {}
  // No more sends will come: finishes those there are, tells the peer, then Socket::shut_down().
  virtual void shut_down() = 0;
  // The application has closed the socket; sends are finished as by shut_down(). Ends with
  // Socket::closed().
  virtual void close() = 0;
  // Ends what it can of the cancelled operations.
  virtual void cancel() = 0;
  // Ends the connection, and every operation with `error`, at once.
  virtual void fail(int error) = 0;

  // Reports of the engine.
  virtual void on_completions(std::span<const ibv_wc> /*completions*/) {}
  virtual void on_cm(const CmEvent& /*event*/) {}
  virtual void on_ready(std::uint32_t /*epoll_events*/) {}
  // Its time has come, see Engine::schedule().
  virtual void on_time() {}
  // The socket from whose listener this one came, once, when it is ready to be accepted.
  virtual std::shared_ptr<Socket> take_parent() { return nullptr; }

  // Something to receive, an end or an error; room to send.
  [[nodiscard]] virtual bool readable() const = 0;
  [[nodiscard]] virtual bool writable() const = 0;
  [[nodiscard]] virtual bool is_rdma() const = 0;
};

// Options that can be set before a socket connects or listens.
struct Settings {
  std::uint32_t immediate_bytes = 4096;
  std::uint16_t slots = 64;
  std::uint32_t ring_bytes = 1U << 20U;
  int provider = EXS_PROVIDER_AUTO;
  int tcp_port = 0;  // listeners over RDMA: for peers with only TCP. 0: none
};

struct TimeLimit {
  Clock::duration after{};  // zero: none
  bool once = false;
  std::shared_ptr<EventQueue> queue;
  exs_ahandle_t ahandle = 0;
  exs_timeout_t given{};
  Instant since{};  // when something last moved
};

class Socket : public std::enable_shared_from_this<Socket> {
 public:
  Socket(int fd, int domain, Kind kind);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  const int fd;
  const int domain;
  const Kind kind;
  os::Mutex mutex;

  State state = State::kNew;  // on() writes it, nobody else
  int error = 0;              // why it failed
  bool nonblocking = false;
  bool foreign = false;     // a plain socket of the application's
  std::uint64_t inode = 0;  // foreign: to tell when the number has been given to another file
  bool peer_gone = false;  // the peer has closed: there is an end to receive, and nobody to send to
  SocketEnd end;
  Settings settings;
  Address bound;
  std::unique_ptr<Provider> provider;
  exs_stats_t stats{};
  TimeLimit send_limit;
  TimeLimit receive_limit;

  Operations ops;
  Backlog backlog;  // listeners

  // Follows the table of exs_states.h. False: that is not for this state, and nothing changes.
  [[nodiscard]] bool on(StateEvent event) { return follow(state_arrows(), state, event); }
  // The same, for an event that this state has an arrow for.
  void advance(StateEvent event) { weft::advance(state_arrows(), state, event); }
  // A fresh operation at the end of `list`.
  Operation& add(OperationList& list);
  // Its event, and the operation is gone. `it` is in `list`.
  void finish(OperationList& list, OperationList::iterator it, int failure, std::size_t length);
  void finish_front(OperationList& list, int failure, std::size_t length) {
    finish(list, list.begin(), failure, length);
  }
  void finish_all(OperationList& list, int failure);
  // Has the provider's on_time() come when the peer, which may have stopped, has had its time to
  // answer to the cancellation of what is left.
  void look_at_cancelled_later();
  // Its event, while its place stays: the peer knows of it, but reaches its memory no more.
  void revoke(Operation& op, int failure);
  // Its event, with success, while it goes on with memory of its own. REQUIRES: it names no other
  // that it still needs.
  void let_go(Operation& op);
  // Takes back the last of `list`, of which nobody has heard.
  void unadd(OperationList& list);

  // Calls `work`, which is the provider's. Where there is no memory for that the connection ends.
  template <class Work>
  void guarded(Work work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      if (provider != nullptr) provider->fail(ENOMEM);
    }
  }

  // Reports of providers.
  void connected(int failure);
  void failed(int failure);  // every operation ends; exs_close still has to be called
  void shut_down(int failure);
  void closed(int failure);
  // A connection for exs_accept. False: the backlog is full.
  bool arrived(Arrival arrival);
  void match_accepts();
  // Readiness may have changed: exs_poll, and callers that wait for room, look again.
  void changed();

  // Waits, driving, until `list` has room. False: EAGAIN. Lets go of the mutex meanwhile.
  bool wait_for_room(OperationList& list, bool may_block) WEFT_REQUIRES(mutex);

  // Fires the time limits that have passed, and schedules the next look.
  void check_limits();
  // Has check_limits() called at `when`, or before.
  void look_at(Instant when);

  std::vector<std::shared_ptr<PollWait>> watchers;
  // The application has closed the descriptor by itself, and its number is another socket's now.
  bool descriptor_lost = false;
  // After exs_close: has the linger time seen to.
  void limit_close();

 private:
  void check_limit(TimeLimit& limit, const OperationList& list, int type, Instant now,
                   Instant& next);
  void moved(const OperationList& list);

  void end_late_close();

  Instant next_look_ = Instant::max();  // when the engine will call check_limits()
  os::Condition room_;
  int room_waiters_ = 0;
};

// Closes the sockets that nobody will accept. Without any lock.
void close_arrivals(std::deque<Arrival> arrivals);

// The events that exs_poll reports for a socket.
short readiness(Socket& socket, short events);

// A line on stderr about a connection that ended badly, unless EXS_LOG=off.
void log_line(const Socket& socket, const char* what, const char* why);

}  // namespace weft::exs
