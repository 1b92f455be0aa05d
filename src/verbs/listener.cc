#include "verbs/listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <weft/limits.h>

#include <algorithm>
#include <new>
#include <utility>

#include "io/socket.h"
#include "os/cancel.h"
#include "os/guarded.h"
#include "verbs/connection.h"
#include "verbs/event_channel.h"

namespace weft::verbs {

namespace {

// This many in one go, then others get their turn.
constexpr int kAcceptsPerRound = 64;
// The kernel's queue, which it shortens to net.core.somaxconn. A SYN that it drops costs the peer a
// second, and many silent connections may come at once.
constexpr int kKernelBacklog = 65536;
constexpr Duration kDescriptorPause{100'000'000};
// How often a number is sought that is free for TCP and UDP.
constexpr int kPortAttempts = 16;
// An honest peer sends its Request at once, behind the segment that ends the handshake. Nobody who
// has waited for less than this has to make room for a newcomer.
constexpr Duration kTimeForARequest{50'000'000};
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

rlim_t descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
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

Status ListenerImpl::bind(const SocketAddress& local, bool reuse_address, bool v6_only) {
  return os::guarded([&] { return take_port(local, reuse_address, v6_only); });
}

Status ListenerImpl::bind_service(const SocketAddress& local, bool v6_only) {
  return os::guarded([&] { return take_service(local, v6_only); });
}

Status ListenerImpl::hand_in(int fd) {
  return os::guarded([&] { return take_in(fd); });
}

Status ListenerImpl::take_port(const SocketAddress& local, bool reuse_address, bool v6_only) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (local.family() != AF_INET && local.family() != AF_INET6) {
    return fail(Error::kInvalidArgument);
  }
  const os::MutexLock lock(mutex_);
  if (socket_) return fail(Error::kBadState);
  auto socket = open_listening(local, reuse_address, v6_only);
  if (!socket) return fail(socket.error());
  const SocketAddress known = io::local_address(socket->get());
  if (known.family() == AF_UNSPEC) return fail(Error::kNoMemory);
  local_ = known;
  socket_ = std::move(*socket);
  return {};
}

Result<os::Fd> ListenerImpl::open_listening(const SocketAddress& local, bool reuse_address,
                                            bool v6_only) const {
  auto socket = io::open_socket(local.family());
  if (!socket) return fail(socket.error());
  // A port that is named is not held by the connections of an earlier server that linger in
  // TIME_WAIT; another listener holds it all the same, since this one listens at once. Linux siw
  // does so too.
  const bool reuse = reuse_address || local.port() != 0;
  if (auto bound = io::bind_socket(socket->get(), local, reuse, v6_only); !bound) {
    return fail(bound.error());
  }
  // From here on the kernel holds connections for listen() to take. Programs tell their clients the
  // port once it is bound (qperf does), and a quick client would be refused before they listen.
  // Accepted sockets inherit the buffer sizes, and the window scale is settled by then.
  io::tune_before_connect(socket->get(), device_->config());
  if (auto holds = io::listen_socket(socket->get(), kKernelBacklog); !holds) {
    return fail(holds.error());
  }
  return socket;
}

Status ListenerImpl::take_service(const SocketAddress& local, bool v6_only) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (local.family() != AF_INET && local.family() != AF_INET6) {
    return fail(Error::kInvalidArgument);
  }
  const os::MutexLock lock(mutex_);
  if (socket_) return fail(Error::kBadState);
  auto socket = choose_service(local, v6_only);
  if (!socket) {
    service_.reset();
    return fail(socket.error());
  }
  const SocketAddress known = io::local_address(socket->get());
  Status served;
  if (known.family() == AF_UNSPEC) served = fail(Error::kNoMemory);
  if (served && service_) served = service_->serve(device_->engine(), known.port());
  if (!served) {
    service_.reset();
    return served;
  }
  v6_only_ = v6_only;
  carries_ = device_->peer_directory() != nullptr;
  socket_ = std::move(*socket);
  local_ = known;
  if (service_ != nullptr) local_.set_port(service_->address().port());
  return {};
}

// A RoCE-like device leaves the TCP port of the number alone. An iWARP device takes it where it is
// free, since peers that are not Weft know no other.
Result<os::Fd> ListenerImpl::choose_service(const SocketAddress& local, bool v6_only) {
  const bool roce_like = device_->peer_directory() != nullptr;
  SocketAddress anywhere = local;
  anywhere.set_port(0);
  if (!device_->config().port_map) return open_listening(local, true, v6_only);
  if (roce_like) {
    auto service = ServicePort::take(local, v6_only, roce_like);
    if (!service) return fail(service.error());
    service_ = std::move(*service);
    return open_listening(anywhere, false, v6_only);
  }
  for (int attempt = 0;; ++attempt) {
    auto socket = open_listening(local, true, v6_only);
    if (!socket && socket.error() != Error::kAddressInUse) return socket;
    SocketAddress wanted = local;
    if (socket) wanted.set_port(io::local_address(socket->get()).port());
    auto service = ServicePort::take(wanted, v6_only, roce_like);
    if (service) {
      service_ = std::move(*service);
      return socket ? std::move(socket) : open_listening(anywhere, false, v6_only);
    }
    if (service.error() != Error::kAddressInUse && service.error() != Error::kPermission) {
      return fail(service.error());
    }
    // Another program has the UDP port: a plain TCP port then, where that was to be had.
    const bool again = local.port() == 0 && attempt < kPortAttempts;
    if (!again) return socket;
  }
}

bool ListenerImpl::yield_port(std::uint16_t port) {
  if (!device_->usable()) return false;
  os::Fd old;  // goes outside the mutex, once the new one is at work
  const os::MutexLock lock(mutex_);
  if (service_ == nullptr || io::local_address(socket_.get()).port() != port) return false;
  SocketAddress anywhere = local_;
  anywhere.set_port(0);
  auto socket = open_listening(anywhere, false, v6_only_);
  if (!socket) return false;
  if (listening_) {
    if (!device_->engine().add(socket->get(), watching_ ? EPOLLIN : 0U, weak_from_this())) {
      return false;
    }
    device_->engine().forget(socket_.get());
  }
  service_->move_to(io::local_address(socket->get()).port());
  old = std::move(socket_);
  socket_ = std::move(*socket);
  // Nobody else may get the port but the program, which asks for it next.
  old.reset();
  return true;
}

Status ListenerImpl::adopt(int fd) {
  if (!device_->usable()) return fail(Error::kBadState);
  const os::MutexLock lock(mutex_);
  if (socket_) return fail(Error::kBadState);
  if (auto fit = io::prepare_adopted(fd); !fit) return fit;
  socket_ = os::Fd(fd);
  local_ = io::local_address(fd);
  return {};
}

Status ListenerImpl::take_in(int fd) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (auto fit = io::prepare_adopted(fd); !fit) return fit;
  os::Fd socket = os::Fd::connection(fd);
  std::shared_ptr<EventChannel> channel;
  {
    const os::MutexLock lock(mutex_);
    channel = channel_.lock();
  }
  if (channel == nullptr) return fail(Error::kBadState);
  auto made = ConnectionImpl::create_accepted(device_, channel, shared_from_this(),
                                              std::move(socket), io::peer_address(fd));
  if (!made) return fail(made.error());
  {
    const os::MutexLock lock(mutex_);
    add_half_open(*made);
  }
  (*made)->start_request(true);
  return {};
}

Status ListenerImpl::listen(int backlog) {
  if (!device_->usable()) return fail(Error::kBadState);
  const os::MutexLock lock(mutex_);
  if (!socket_ || listening_) return fail(Error::kBadState);
  constexpr auto kLimit = static_cast<int>(limits::kBacklog);
  const int wanted = backlog <= 0 || backlog > kLimit ? kLimit : backlog;
  if (auto listens = io::listen_socket(socket_.get(), kKernelBacklog); !listens) return listens;
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
  }
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
  if (found.connection != nullptr) found.connection->start_request(found.alone);
  return found.more;
}

ListenerImpl::Look ListenerImpl::look() {
  if (!may_accept()) return {};
  Look out;
  const bool full = device_->half_open().size() >= half_open_limit();
  // Rather a peer that is slow to speak than those that the kernel would drop unseen.
  if (full && !oldest_has_had_its_time() && !io::queue_is_long(socket_.get())) {
    crowded_ = true;
    look_again_at(
        std::min(device_->half_open().oldest_since() + kTimeForARequest, os::now() + kQueuePause));
    update_watch();
    return out;
  }
  SocketAddress peer;
  auto socket = io::accept_socket(socket_.get(), peer);
  if (!socket) return no_socket(socket.error());
  refusing_ = false;
  out.more = !std::exchange(gave_way_, false);  // one gives way, then others get their turn
  out.channel = channel_.lock();
  if (out.channel == nullptr) return out;  // nobody to tell: it is closed
  std::shared_ptr<ConnectionImpl> oldest = full ? device_->half_open().oldest() : nullptr;
  out.connection = take_half_open(out.channel, std::move(*socket), peer);
  if (out.connection == nullptr) return out;
  out.gives_way = std::move(oldest);
  out.alone = device_->half_open().size() == 1;
  return out;
}

// Null: there is no memory for it, and it is closed.
std::shared_ptr<ConnectionImpl> ListenerImpl::take_half_open(
    const std::shared_ptr<EventChannel>& channel, os::Fd socket, const SocketAddress& peer) {
  try {
    auto made = ConnectionImpl::create_accepted(device_, channel, shared_from_this(),
                                                std::move(socket), peer);
    if (!made) return nullptr;
    add_half_open(*made);
    return std::move(*made);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool ListenerImpl::oldest_has_had_its_time() const {
  const Instant since = device_->half_open().oldest_since();
  return !since.is_never() && os::now() - since >= kTimeForARequest;
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
  if (oldest_has_had_its_time()) {
    gave_way_ = true;
    out.gives_way = device_->half_open().oldest();
    return out;
  }
  spare_.reset();
  const Status refused = refuse_one(socket_.get());
  spare_ = open_spare();
  if (refused && !std::exchange(refusing_, true)) {
    os::log(LogLevel::kError,
            "out of file descriptors (EMFILE; this process may open {}, see ulimit -n): refusing "
            "connections to {}",
            descriptor_limit(), local_.text());
  }
  if (refused) return out;
  out.more = false;
  if (refused.error() != Error::kTimedOut) pause();  // else it has gone by itself
  return out;
}

void ListenerImpl::pause() {
  os::log(LogLevel::kError, "the kernel cannot accept: connections to {} have to wait",
          local_.text());
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

void ListenerImpl::add_half_open(const std::shared_ptr<ConnectionImpl>& connection) {
  const Instant now = os::now();
  half_open_.add(connection, now);
  try {
    device_->half_open().add(connection, now);
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
