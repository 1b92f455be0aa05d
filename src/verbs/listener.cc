#include "verbs/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <weft/limits.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "io/socket.h"
#include "os/cancel.h"
#include "os/descriptor_limit.h"
#include "os/guarded.h"
#include "verbs/connection.h"
#include "verbs/event_channel.h"

namespace weft::verbs {

namespace {

// This many in one go, then others get their turn.
constexpr int kAcceptsPerRound = 64;
constexpr Duration kDescriptorPause{100'000'000};
// How often the kernel's queue is looked at while nobody has to make room.
constexpr Duration kQueuePause{5'000'000};

os::Fd open_spare() {
  return os::Fd(os::uncancelled([] { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }));
}

// Takes one connection off the kernel's queue and resets it.   kTimedOut: there is none
Status refuse_one(int listening) {
  SocketAddress peer;
  auto socket = io::accept_socket(listening, peer);
  if (!socket) return fail(socket.error());
  const linger at_once{1, 0};
  setsockopt(socket->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  return {};
}

}  // namespace

Result<std::shared_ptr<ListenerImpl>> ListenerImpl::create(
    std::shared_ptr<DeviceImpl> device, const std::shared_ptr<EventChannel>& channel) {
  auto counted = ObjectCount::take(*device, ObjectKind::kListener);
  if (!counted) return fail(counted.error());
  device->ensure_page();
  return std::shared_ptr<ListenerImpl>(
      new ListenerImpl(std::move(device), std::move(*counted), channel));
}

ListenerImpl::~ListenerImpl() {
  if (!device_->usable()) return;
  close();
  device_->engine().wait_for(this);
}

Status ListenerImpl::hand_in(int fd) {
  return os::guarded([&] { return take_in(fd); });
}

Status ListenerImpl::adopt(int fd) {
  if (!device_->usable()) return fail(Error::kBadState);
  const os::MutexLock lock(mutex_);
  if (socket_) return fail(Error::kBadState);
  if (auto fit = io::prepare_adopted(fd); !fit) return fit;
  socket_ = os::Fd::closed_in_child(fd);
  local_ = io::local_address(fd);
  return {};
}

Status ListenerImpl::take_in(int fd) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (auto fit = io::prepare_adopted(fd); !fit) return fit;
  os::Fd socket = os::Fd::closed_in_child(fd);
  const SocketAddress peer = io::peer_address(fd);
  const std::shared_ptr<EventChannel> where = channel();
  if (where == nullptr) return fail(Error::kBadState);
  auto made = ConnectionImpl::create_accepted(device_, where, shared_from_this(), std::move(socket),
                                              peer, {});
  if (!made) return fail(made.error());
  {
    const os::MutexLock lock(mutex_);
    if (closed_) return fail(Error::kBadState);
    add_half_open(*made, peer);
  }
  (*made)->start_request(true, false);
  return {};
}

Status ListenerImpl::listen(int backlog) {
  if (!device_->usable()) return fail(Error::kBadState);
  const os::MutexLock lock(mutex_);
  if (!socket_ || listening_) return fail(Error::kBadState);
  constexpr auto kLimit = static_cast<int>(limits::kBacklog);
  const int wanted = backlog <= 0 || backlog > kLimit ? kLimit : backlog;
  if (auto listens = io::listen_socket(socket_.get()); !listens) return listens;
  if (auto added = device_->engine().add(socket_.get(), EPOLLIN, weak_from_this()); !added)
    return added;
  spare_ = open_spare();
  backlog_ = static_cast<std::size_t>(wanted);
  listening_ = watching_ = true;
  return {};
}

void ListenerImpl::close() {
  if (!device_->usable()) return;
  HalfOpen<ConnectionImpl>::Entries half_open, held;
  std::shared_ptr<EventChannel> channel;
  std::shared_ptr<ServicePort> service;
  {
    const os::MutexLock lock(mutex_);
    closed_ = true;
    if (listening_) device_->engine().forget(socket_.get());
    device_->engine().forget_timer(timer_);
    timer_ = 0;
    listening_ = watching_ = false;
    socket_.reset();
    service = std::move(service_);
    service_ = nullptr;
    spare_.reset();
    held = held_.remove_all();
    half_open = half_open_.remove_all();
    for (const auto& one : half_open) device_->half_open().remove(one.who.get());
    channel = channel_.lock();
  }
  if (service != nullptr) service->close(device_->engine());
  for (const auto& one : half_open) one.who->drop("the listener was closed");
  if (EventChannelImpl* const queue = EventChannelImpl::of(channel)) queue->drop_requests(this);
}

void ListenerImpl::set_channel(std::shared_ptr<EventChannel> channel) {
  if (!device_->usable() || channel == nullptr) return;
  std::shared_ptr<EventChannel> old;
  {
    const os::MutexLock lock(mutex_);
    old = channel_.lock();
    channel_ = channel;
  }
  EventChannelImpl* const from = EventChannelImpl::of(old);
  EventChannelImpl* const to = EventChannelImpl::of(channel);
  if (from != nullptr && to != nullptr) from->move_requests(this, *to);
}

std::shared_ptr<EventChannel> ListenerImpl::channel() const {
  const os::MutexLock lock(mutex_);
  return channel_.lock();
}

SocketAddress ListenerImpl::local_address() const {
  if (!device_->usable()) return {};
  const os::MutexLock lock(mutex_);
  return local_;
}

// --- the engine's thread ---

void ListenerImpl::on_io(std::uint32_t /*events*/) {
  const auto self = weak_from_this().lock();
  if (self == nullptr) return;
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    if (!accept_one()) return;
    // One that came alone needs no call to find that: others are reported. But a descriptor that
    // was given up for the next one is free only now.
    if (i == 0 && device_->half_open().size() <= 1 && !gave_way()) return;
  }
}

bool ListenerImpl::gave_way() const {
  const os::MutexLock lock(mutex_);
  return gave_way_;
}

// False: no more for now.
bool ListenerImpl::accept_one() {
  Look found;
  {
    const os::MutexLock lock(mutex_);
    found = look();
  }
  if (found.gives_way != nullptr) found.gives_way->give_way();
  // Beside others it is epoll that says whose Request came first: the application hears of them in
  // that order.
  if (found.connection != nullptr) {
    found.connection->start_request(found.alone, found.inherited);
  }
  return found.more;
}

ListenerImpl::Look ListenerImpl::look() {
  if (!may_accept()) return {};
  Look out;
  const HalfOpenOfDevice& all = device_->half_open();
  std::shared_ptr<ConnectionImpl> oldest;
  if (all.size() >= kHalfOpenLimitMin && all.size() >= half_open_limit()) {
    // Rather a peer that is slow to speak than those that the kernel would drop unseen.
    oldest = all.gives_way(io::queue_is_long(socket_.get()), held_.size() == 0);
    if (oldest == nullptr) {
      crowded_ = true;
      look_again_at(std::min(all.gives_way_at(), os::now() + kQueuePause));
      update_watch();
      return out;
    }
  }
  SocketAddress peer;
  auto socket = io::accept_socket(socket_.get(), peer);
  if (!socket) return no_socket(socket.error());
  refusing_ = false;
  out.more = !std::exchange(gave_way_, false);  // one gives way, then others get their turn
  out.channel = channel_.lock();
  if (out.channel == nullptr) return out;  // nobody to tell: it is closed
  out.connection = take_half_open(out.channel, std::move(*socket), peer);
  if (out.connection == nullptr) return out;
  out.gives_way = std::move(oldest);
  out.alone = device_->half_open().size() == 1;
  out.inherited = tuned_;
  return out;
}

// Null: there is no memory for it, and it is closed.
std::shared_ptr<ConnectionImpl> ListenerImpl::take_half_open(
    const std::shared_ptr<EventChannel>& channel, os::Fd socket, const SocketAddress& peer) {
  try {
    const bool known = bound_.family() != AF_UNSPEC && !bound_.is_any();
    auto made =
        ConnectionImpl::create_accepted(device_, channel, shared_from_this(), std::move(socket),
                                        peer, known ? bound_ : SocketAddress());
    if (!made) return nullptr;
    add_half_open(*made, peer);
    return std::move(*made);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

ListenerImpl::Look ListenerImpl::no_socket(Error why) {
  Look out;
  out.more = why == Error::kConnectionLost;
  if (why != Error::kLimitExceeded && why != Error::kNoSpace) return out;
  // Without descriptors the kernel reports the same error when no connection waits.
  if (!io::connection_waits(socket_.get())) return out;
  if (why == Error::kLimitExceeded) return out_of_descriptors();
  pause();  // it is the machine's lack: a reset here would help nobody
  return out;
}

// A connection that is not taken would leave its client waiting for a Reply, and the descriptor of
// the listener readable forever. So a silent one is closed for its sake. If there is none the
// newcomer is refused, by means of the descriptor that was kept back.
ListenerImpl::Look ListenerImpl::out_of_descriptors() {
  Look out;
  // The descriptor that was given up is another's: one more would go the same way.
  if (std::exchange(gave_way_, false)) {
    pause();
    return out;
  }
  out.more = true;
  out.gives_way = device_->half_open().gives_way(false, held_.size() == 0);
  gave_way_ = out.gives_way != nullptr;
  if (gave_way_) return out;
  spare_.reset();
  const Status refused = refuse_one(socket_.get());
  spare_ = open_spare();
  if (refused && !std::exchange(refusing_, true)) {
    os::log(LogLevel::kError,
            "out of file descriptors (EMFILE; this process may open {}, see ulimit -n): refusing "
            "connections to {}",
            os::descriptor_limit(), local_.shown().view());
  }
  if (refused) return out;
  out.more = false;
  if (refused.error() != Error::kTimedOut) pause();  // else it has gone by itself
  return out;
}

void ListenerImpl::pause() {
  os::log(LogLevel::kError, "the kernel cannot accept: connections to {} have to wait",
          local_.shown().view());
  paused_ = true;
  look_again_at(os::now() + kDescriptorPause);
  update_watch();
}

void ListenerImpl::look_again_at(Instant when) {
  device_->engine().forget_timer(timer_);
  timer_ = device_->engine().schedule(when, weak_from_this());
  if (timer_ == 0) paused_ = crowded_ = false;  // nobody would look: epoll says it again at once
}

void ListenerImpl::on_timer(io::TimerId id) {
  const auto self = weak_from_this().lock();
  if (self == nullptr) return;
  const os::MutexLock lock(mutex_);
  if (id != timer_) return;
  timer_ = 0;
  paused_ = crowded_ = false;
  update_watch();
}

// One that does not listen has no backlog: who hands connections in decides how many.
bool ListenerImpl::backlog_is_full() const { return backlog_ != 0 && undelivered_ >= backlog_; }

bool ListenerImpl::may_accept() const {
  assert(!listening_ || socket_);
  return listening_ && !paused_ && !crowded_ && !backlog_is_full();
}

void ListenerImpl::update_watch() {
  if (!listening_) return;
  const bool wanted = may_accept();
  if (wanted == watching_) return;
  watching_ = wanted;
  static_cast<void>(device_->engine().modify(socket_.get(), wanted ? EPOLLIN : 0U));
}

// --- its connections ---

void ListenerImpl::add_half_open(const std::shared_ptr<ConnectionImpl>& connection,
                                 const SocketAddress& peer) {
  assert(connection != nullptr);
  const Instant now = os::now();
  half_open_.add(connection, now);
  try {
    device_->half_open().add(connection, peer, now);
  } catch (const std::bad_alloc&) {
    half_open_.remove(connection.get());
    throw;
  }
}

std::shared_ptr<ConnectionImpl> ListenerImpl::remove_half_open(const ConnectionImpl* who) {
  device_->half_open().remove(who);
  return half_open_.remove(who);
}

bool ListenerImpl::request_ready(ConnectionImpl& connection) {
  const os::MutexLock lock(mutex_);
  if (closed_) return false;  // who closes it drops the connection next
  if (backlog_is_full() || held_.size() != 0) {
    held_.add(connection.shared_from_this(), os::now());
    device_->half_open().has_asked(&connection);
    if (!backlog_is_full()) report_held_soon();
    return false;
  }
  remove_half_open(&connection);
  ++undelivered_;
  crowded_ = false;
  update_watch();
  return true;
}

void ListenerImpl::request_settled() {
  const os::MutexLock lock(mutex_);
  assert(undelivered_ > 0);
  --undelivered_;
  update_watch();
  if (held_.size() != 0) report_held_soon();
}

// The caller holds a connection's mutex_, and others' are needed. Where there is no memory, the
// next request asks again.
void ListenerImpl::report_held_soon() {
  static_cast<void>(device_->engine().post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->report_held();
  }));
}

void ListenerImpl::report_held() {
  while (const auto connection = next_held()) connection->report_request();
}

// The first of those that wait for a place in the backlog; it has the place now. Null: none waits,
// or there is no place.
std::shared_ptr<ConnectionImpl> ListenerImpl::next_held() {
  const os::MutexLock lock(mutex_);
  if (backlog_is_full()) return nullptr;
  const std::shared_ptr<ConnectionImpl> out = held_.oldest();
  if (out == nullptr) return nullptr;
  held_.remove(out.get());
  remove_half_open(out.get());
  ++undelivered_;
  crowded_ = false;
  update_watch();
  return out;
}

std::shared_ptr<ConnectionImpl> ListenerImpl::forget_half_open(ConnectionImpl& connection) {
  const os::MutexLock lock(mutex_);
  held_.remove(&connection);
  std::shared_ptr<ConnectionImpl> out = remove_half_open(&connection);
  crowded_ = false;
  update_watch();
  return out;
}

}  // namespace weft::verbs
