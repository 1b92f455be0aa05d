// Helpers that all calls of the C API share.
#pragma once

#include <cassert>
#include <cerrno>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "exs/core/exs_engine.h"
#include "exs/rdma/rdma_socket.h"
#include "exs/tcp/tcp_socket.h"

namespace weft::exs {

inline int fail(int error) {
  errno = error;
  return -1;
}

// The end of a call that threw: no memory, or what the operating system refused. Destructors have
// taken back what the call had begun.
int refuse(const std::exception& thrown);

// The socket with this descriptor. A plain TCP socket of the application's is taken in. Null, with
// errno: EBADF, ENOTSOCK, EOPNOTSUPP.
std::shared_ptr<Socket> socket_of(int fd);

// Where the outcome of a call goes: the queue it names, or one of this thread's own for a call that
// blocks. Null: no such queue.
//
// Counts as an operation that names the queue, until it is given to one.
class Outlet {
 public:
  explicit Outlet(exs_qhandle_t q);
  ~Outlet() {
    if (attached_) queue->detach();
  }
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  // For the operation, which names the queue from now on. Once.
  std::shared_ptr<EventQueue> give() {
    assert(attached_);
    attached_ = false;
    return queue;
  }

  std::shared_ptr<EventQueue> queue;
  bool blocking = false;

 private:
  bool attached_ = false;
};

// Waits for the event of a send, a receive or an accept that has just been posted to the thread's
// own queue. With a time limit the operation is cancelled when it has passed, and the error is
// ETIMEDOUT. A thread that is cancelled (pthread_cancel) cancels the operation, and ends behind it.
exs_event_t wait_for_event(const std::shared_ptr<Socket>& socket, const Outlet& outlet,
                           Clock::duration limit);
// The same for what cannot be taken back: there the thread is not cancelled.
exs_event_t wait_for_end(const Outlet& outlet);
// A call that may not block has posted the operation: it ends now, with ECANCELED where there is
// more to do. With the socket's mutex.
void end_now(Socket& socket, const Outlet& outlet);

// The memory of a piece; `op` holds it until it ends. 0 or an errno.
int add_piece(Operation& op, void* base, std::size_t length, exs_mhandle_t mh);

// An operation at the end of a list, of which nobody has heard yet: gone with this object, unless
// it is kept.
class Posting {
 public:
  Posting(Socket& socket, OperationList& list)
      : socket_(socket), list_(list), op(socket.add(list)) {}
  ~Posting() {
    if (!kept_) socket_.unadd(list_);
  }
  Posting(const Posting&) = delete;
  Posting& operator=(const Posting&) = delete;
  void keep() { kept_ = true; }

 private:
  Socket& socket_;
  OperationList& list_;
  bool kept_ = false;

 public:
  Operation& op;
};

// The provider, chosen now if it is not yet. 0 or an errno.
int choose_provider(Socket& socket);

// After posting: those who wait in exs_poll.
inline void posted() { Engine::instance().run_polls(); }

// exs_init has been called, in this very process: not before a fork().
inline bool initialized() { return Engine::instance().started(); }

// The socket over RDMA, connected. Null, with errno. With the socket's mutex.
RdmaSocket* rdma_of(Socket& socket);

}  // namespace weft::exs
