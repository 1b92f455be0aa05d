#include "exs/core/exs_socket.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "exs/core/exs_host.h"
#include "os/cancel.h"
#include "os/say.h"

namespace weft::exs {
namespace {

// How long a peer may take to answer to a cancellation. Long beside what a busy one needs, and
// short for who waits for a call with a time limit.
constexpr auto kAnswerLimit = std::chrono::milliseconds(100);

void detach_regions(const Operation& op) {
  for (const auto* pieces : {&op.pieces, &op.files.named()}) {
    for (const Piece& piece : *pieces) {
      if (piece.region != nullptr) piece.region->detach();
    }
  }
}

}  // namespace

Socket::Socket(int descriptor, int family, Kind type) : fd(descriptor), domain(family), kind(type) {
  stats.size = sizeof stats;
}

// Each operation has had its end, and whatever it held is given back.
Socket::~Socket() {
  assert(ops.none());
  assert(send_limit.queue == nullptr && receive_limit.queue == nullptr);
}

Operation& Socket::add(OperationList& list) {
  const bool first = list.empty();
  Operation& op = ops.add(list);
  if (first) moved(list);
  return op;
}

void Socket::unadd(OperationList& list) {
  assert(!list.empty());
  Operation& op = list.back();
  assert(op.done == 0 && op.handed == 0 && !op.advertised);
  detach_regions(op);
  if (op.queue != nullptr) op.queue->detach();
  ops.drop(list, std::prev(list.end()));
}

void Socket::moved(const OperationList& list) {
  TimeLimit* limit = nullptr;
  if (&list == &ops.sends) limit = &send_limit;
  if (&list == &ops.receives) limit = &receive_limit;
  if (limit == nullptr || limit->after == Clock::duration::zero()) return;
  limit->since = Clock::now();
  look_at(limit->since + limit->after);
}

// A look that comes earlier will see to this limit too.
void Socket::look_at(Instant when) {
  if (next_look_ <= when) return;
  SocketHost::instance().reschedule(shared_from_this(), next_look_, when);
  next_look_ = when;
}

void Socket::limit_close() {
  assert(end.closing());
  if (state != State::kClosed) look_at(end.limit(Clock::now()));
}

void Socket::end_late_close() {
  end.abort();
  if (state == State::kClosed) return;
  for (Operation& op : ops.closing) op.error = ETIMEDOUT;
  if (provider != nullptr) provider->close();
}

void Socket::finish(OperationList& list, OperationList::iterator it, int failure,
                    std::size_t length) {
  assert(it != list.end());
  Operation& op = *it;
  assert(length <= op.total && op.done <= op.total && op.handed <= op.total);
  // Before anybody hears of the end: nobody may reach the memory any more, and the queue and the
  // regions may be given back.
  op.grants.clear();
  op.locals.clear();
  const exs_event_t event = event_of(op, fd, failure, length);
  const std::shared_ptr<EventQueue> queue = std::move(op.queue);
  detach_regions(op);
  ops.drop(list, it);
  moved(list);
  if (queue == nullptr) return;
  queue->complete(event);
}

void Socket::look_at_cancelled_later() {
  const Instant now = Clock::now();
  Instant next = Instant::max();
  for (auto* list : {&ops.sends, &ops.receives}) {
    for (Operation& op : *list) {
      if (!op.cancellation.pending()) continue;
      next = std::min(next, op.cancellation.give_time(now, kAnswerLimit));
    }
  }
  look_at(next);  // which comes here again
}

void Socket::revoke(Operation& op, int failure) {
  assert(op.advertised);
  op.cancellation.revoke();
  op.grants.clear();
  op.locals.clear();
  const exs_event_t event = event_of(op, fd, failure, op.done);
  const std::shared_ptr<EventQueue> queue = std::move(op.queue);
  detach_regions(op);
  op.pieces.clear();
  op.files.forget_named();
  if (queue != nullptr) queue->complete(event);
}

void Socket::let_go(Operation& op) {
  assert(op.now && (op.files.loaded() || op.done == op.total));
  const exs_event_t event = event_of(op, fd, 0, op.total);
  const std::shared_ptr<EventQueue> queue = std::move(op.queue);
  detach_regions(op);
  if (!op.files.loaded()) op.pieces.clear();
  op.files.forget_named();
  op.now = false;
  op.cancellation = {};
  queue->complete(event);
}

void Socket::finish_all(OperationList& list, int failure) {
  while (!list.empty()) finish_front(list, failure, list.front().done);
}

void Socket::connected(int failure) {
  if (state != State::kConnecting) return;
  assert(ops.one_sided.empty() && ops.shutdown.empty() && ops.accepts.empty());
  advance(failure == 0 ? StateEvent::kConnected : StateEvent::kFailed);
  error = failure;
  if (failure != 0) {
    finish_all(ops.sends, failure);
    finish_all(ops.receives, failure);
  }
  finish_all(ops.connecting, failure);
  if (failure != 0 && end.closing()) closed(0);
  changed();
}

void Socket::failed(int failure) {
  if (state == State::kConnecting) return connected(failure);
  if (!on(StateEvent::kFailed)) return;
  assert(failure != 0 && ops.connecting.empty());
  error = failure;
  finish_all(ops.sends, failure);
  finish_all(ops.one_sided, failure);
  finish_all(ops.receives, failure);
  finish_all(ops.accepts, failure);
  finish_all(ops.shutdown, failure);
  if (end.closing()) closed(failure);
  changed();
}

void Socket::shut_down(int failure) {
  finish_all(ops.shutdown, failure);
  changed();
}

void Socket::closed(int failure) {
  if (!on(StateEvent::kClosed)) return;
  finish_all(ops.sends, ECANCELED);
  finish_all(ops.one_sided, ECANCELED);
  finish_all(ops.receives, ECANCELED);
  finish_all(ops.accepts, ECANCELED);
  finish_all(ops.connecting, ECANCELED);
  finish_all(ops.shutdown, failure);
  for (TimeLimit* limit : {&send_limit, &receive_limit}) {
    if (limit->queue != nullptr) limit->queue->detach();
    *limit = TimeLimit{};
  }
  SocketHost::instance().remove(fd, this);
  if (!descriptor_lost) ::close(fd);
  const bool late = !ops.closing.empty() && ops.closing.front().error != 0;
  finish_all(ops.closing, late ? ETIMEDOUT : failure);
  changed();
}

bool Socket::arrived(Arrival arrival) {
  assert(arrival.socket != nullptr && arrival.socket.get() != this);
  if (state != State::kListening || end.closing()) return false;
  backlog.add(std::move(arrival));
  match_accepts();
  changed();
  return true;
}

void Socket::match_accepts() {
  while (!backlog.empty() && !ops.accepts.empty()) {
    const Arrival arrival = backlog.take_first();
    Operation& op = ops.accepts.front();
    assert(op.type == EXS_EVT_ACCEPT && op.queue != nullptr);
    exs_event_t event = event_of(op, fd, 0, 0);
    event.u.accept = {};
    event.u.accept.fd = arrival.socket->fd;
    const Address* addresses[] = {&arrival.peer, &arrival.local};
    for (std::size_t i = 0; i < std::min<std::size_t>(op.addresses.size(), 2); ++i) {
      socklen_t length = op.addresses[i].addrlen;
      addresses[i]->copy_to(op.addresses[i].addr, &length);
      event.u.accept.addrlen[i] = length;
    }
    const std::shared_ptr<EventQueue> queue = op.queue;
    ops.drop(ops.accepts, ops.accepts.begin());
    queue->complete(event);
  }
}

void Socket::changed() {
  if (room_waiters_ != 0) room_.notify_all();
  for (const auto& wait : watchers) SocketHost::instance().kick(wait);
}

bool Socket::wait_for_room(OperationList& list, bool may_block) {
  if (list.size() < Operations::kPendingMax) return true;
  if (!may_block) return false;
  ++room_waiters_;
  while (list.size() >= Operations::kPendingMax && state != State::kFailed &&
         state != State::kClosed) {
    mutex.unlock();
    const bool moved_something = SocketHost::instance().drive();
    mutex.lock();
    // The time limit is for room that our own driving made a moment ago.
    if (moved_something) continue;
    const os::NoCancel guard;
    room_.wait_for(mutex, std::chrono::milliseconds(1));
  }
  assert(room_waiters_ > 0);
  --room_waiters_;
  return true;
}

void Socket::check_limit(TimeLimit& limit, const OperationList& list, int type, Instant now,
                         Instant& next) {
  // Without a queue it is a limit for calls that block, which look at it themselves.
  if (limit.after == Clock::duration::zero() || limit.queue == nullptr) return;
  const auto revoked = [](const Operation& op) { return op.cancellation.revoked(); };
  if (std::ranges::all_of(list, revoked)) return;  // nothing waits
  if (now >= limit.since + limit.after) {
    exs_event_t event{};
    event.type = type;
    event.error = ETIMEDOUT;
    event.ahandle = limit.ahandle;
    event.fd = fd;
    if (limit.once) {
      limit.queue->complete(event);
      limit = TimeLimit{};
      return;
    }
    limit.queue->push(event);
    limit.since = now;
  }
  next = std::min(next, limit.since + limit.after);
}

void Socket::check_limits() {
  const Instant now = Clock::now();
  if (now >= end.due()) end_late_close();
  Instant next = end.due();
  check_limit(send_limit, ops.sends, EXS_EVT_SENDTIMEOUT, now, next);
  check_limit(receive_limit, ops.receives, EXS_EVT_RECVTIMEOUT, now, next);
  // A provider has times of its own: the look that is scheduled may be still to come.
  if (next_look_ <= next && now < next_look_) return;
  if (next != Instant::max()) {
    SocketHost::instance().reschedule(shared_from_this(), next_look_, next);
  }
  next_look_ = next;
}

void close_arrivals(std::deque<Arrival> arrivals) {
  for (const auto& arrival : arrivals) {
    Socket& socket = *arrival.socket;
    const os::MutexLock lock(socket.mutex);
    socket.end.close();
    socket.end.abort();
    socket.provider->close();
  }
}

short readiness(Socket& socket, short events) {
  assert(socket.provider != nullptr ||
         (socket.state != State::kListening && socket.state != State::kConnected));
  int ready = 0;
  if (socket.state == State::kFailed || socket.state == State::kClosed) {
    ready = EXS_POLLERR | EXS_POLLHUP | EXS_POLLIN | EXS_POLLOUT;
  } else if (socket.state == State::kListening) {
    if (!socket.backlog.empty() || socket.provider->readable()) ready = EXS_POLLIN;
  } else if (socket.state == State::kConnected) {
    if (socket.provider->readable()) ready |= EXS_POLLIN;
    // A socket that does not block sends nothing behind something else.
    const std::size_t most = socket.nonblocking ? 1 : Operations::kPendingMax;
    if (!socket.end.shutting() && socket.ops.sends.size() < most && socket.provider->writable()) {
      ready |= EXS_POLLOUT;
    }
  }
  return static_cast<short>(ready & (events | EXS_POLLERR | EXS_POLLHUP));
}

void log_line(const Socket& socket, const char* what, const char* why) {
  static const bool quiet = [] {
    const char* wanted = std::getenv("EXS_LOG");
    return wanted != nullptr && std::strcmp(wanted, "off") == 0;
  }();
  if (!quiet) os::say("exs: socket %d: %s: %s\n", socket.fd, what, why);
}

}  // namespace weft::exs
