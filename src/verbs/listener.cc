#include "verbs/listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <weft/limits.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "io/cancel.h"
#include "io/socket.h"
#include "verbs/connection.h"
#include "verbs/event_channel.h"

namespace weft::verbs {

namespace {

// So many in one go, then others get their turn.
constexpr int kAcceptsPerRound = 64;
// The kernel's queue is never shorter: a SYN it drops costs the peer a second, and many silent
// connections may come at once.
constexpr int kKernelBacklogMin = 512;
constexpr Duration kDescriptorPause{100'000'000};
// An honest peer sends its Request at once. Nobody who has waited for less than this has to make
// room for a newcomer.
constexpr Duration kTimeForARequest{250'000'000};

io::Fd open_spare() {
  return io::Fd(io::uncancelled([] { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }));
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
  if (auto taken = device->acquire(ObjectKind::kListener); !taken) return fail(taken.error());
  device->ensure_page();
  return std::shared_ptr<ListenerImpl>(new ListenerImpl(std::move(device), channel));
}

ListenerImpl::~ListenerImpl() {
  if (!device_->usable()) return;
  close();
  device_->engine().wait_for(this);
  device_->release(ObjectKind::kListener);
}

Status ListenerImpl::bind(const SocketAddress& local, bool reuse_address, bool v6_only) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (local.family() != AF_INET && local.family() != AF_INET6) {
    return fail(Error::kInvalidArgument);
  }
  const io::MutexLock lock(mutex_);
  if (socket_) return fail(Error::kBadState);
  auto socket = io::open_socket(local.family());
  if (!socket) return fail(socket.error());
  // A port that is named is not held by the connections of an earlier server that linger in
  // TIME_WAIT; another listener holds it all the same, since this one listens at once. Linux siw
  // does so too.
  const bool reuse = reuse_address || local.port() != 0;
  if (auto bound = io::bind_socket(socket->get(), local, reuse, v6_only); !bound) return bound;
  // From here on the kernel holds connections for listen() to take. Programs tell their clients the
  // port once it is bound (qperf does), and a quick client would be refused before they listen.
  // Accepted sockets inherit the buffer sizes, and the window scale is settled by then.
  io::tune_before_connect(socket->get(), device_->config());
  if (auto holds = io::listen_socket(socket->get(), kKernelBacklogMin); !holds) return holds;
  socket_ = std::move(*socket);
  local_ = io::local_address(socket_.get());
  return {};
}

Status ListenerImpl::adopt(int fd) {
  if (!device_->usable()) return fail(Error::kBadState);
  const io::MutexLock lock(mutex_);
  if (socket_) return fail(Error::kBadState);
  if (auto fit = io::prepare_adopted(fd); !fit) return fit;
  socket_ = io::Fd(fd);
  local_ = io::local_address(fd);
  return {};
}

Status ListenerImpl::hand_in(int fd) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (auto fit = io::prepare_adopted(fd); !fit) return fit;
  io::Fd socket = io::Fd::connection(fd);
  std::shared_ptr<EventChannel> channel;
  {
    const io::MutexLock lock(mutex_);
    channel = channel_.lock();
  }
  if (channel == nullptr) return fail(Error::kBadState);
  auto made = ConnectionImpl::create_accepted(device_, channel, shared_from_this(),
                                              std::move(socket), io::peer_address(fd));
  if (!made) return fail(made.error());
  {
    const io::MutexLock lock(mutex_);
    add_half_open(*made);
  }
  (*made)->start_request(true);
  return {};
}

Status ListenerImpl::listen(int backlog) {
  if (!device_->usable()) return fail(Error::kBadState);
  const io::MutexLock lock(mutex_);
  if (!socket_ || listening_) return fail(Error::kBadState);
  constexpr auto kLimit = static_cast<int>(limits::kBacklog);
  const int wanted = backlog <= 0 || backlog > kLimit ? kLimit : backlog;
  if (auto listens = io::listen_socket(socket_.get(), std::max(wanted, kKernelBacklogMin));
      !listens) {
    return listens;
  }
  if (auto added = device_->engine().add(socket_.get(), EPOLLIN, weak_from_this()); !added)
    return added;
  spare_ = open_spare();
  backlog_ = static_cast<std::size_t>(wanted);
  listening_ = watching_ = true;
  return {};
}

void ListenerImpl::close() {
  if (!device_->usable()) return;
  std::vector<std::shared_ptr<ConnectionImpl>> half_open, held;
  std::shared_ptr<EventChannel> channel;
  {
    const io::MutexLock lock(mutex_);
    if (listening_) device_->engine().forget(socket_.get());
    device_->engine().forget_timer(timer_);
    timer_ = 0;
    listening_ = watching_ = false;
    socket_.reset();
    spare_.reset();
    held = held_.remove_all();
    half_open = half_open_.remove_all();
    for (const auto& connection : half_open) device_->half_open().remove(connection.get());
    channel = channel_.lock();
  }
  for (const auto& connection : half_open) connection->drop("the listener was closed");
  if (auto* ours = dynamic_cast<EventChannelImpl*>(channel.get())) ours->drop_requests(this);
}

void ListenerImpl::set_channel(std::shared_ptr<EventChannel> channel) {
  if (!device_->usable() || channel == nullptr) return;
  std::shared_ptr<EventChannel> old;
  {
    const io::MutexLock lock(mutex_);
    old = channel_.lock();
    channel_ = channel;
  }
  auto* from = dynamic_cast<EventChannelImpl*>(old.get());
  auto* to = dynamic_cast<EventChannelImpl*>(channel.get());
  if (from != nullptr && to != nullptr) from->move_requests(this, *to);
}

SocketAddress ListenerImpl::local_address() const {
  if (!device_->usable()) return {};
  const io::MutexLock lock(mutex_);
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
    const io::MutexLock lock(mutex_);
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
  if (full && !oldest_has_had_its_time()) {
    crowded_ = true;
    look_again_at(device_->half_open().oldest_since() + kTimeForARequest);
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
  auto made = ConnectionImpl::create_accepted(device_, out.channel, shared_from_this(),
                                              std::move(*socket), peer);
  if (!made) return out;
  if (full) out.gives_way = device_->half_open().oldest();
  out.connection = std::move(*made);
  add_half_open(out.connection);
  out.alone = device_->half_open().size() == 1;
  return out;
}

bool ListenerImpl::oldest_has_had_its_time() const {
  const Instant since = device_->half_open().oldest_since();
  return !since.is_never() && io::now() - since >= kTimeForARequest;
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
    io::log(LogLevel::kError,
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
  io::log(LogLevel::kError, "the kernel cannot accept: connections to {} have to wait",
          local_.text());
  paused_ = true;
  look_again_at(io::now() + kDescriptorPause);
  update_watch();
}

void ListenerImpl::look_again_at(Instant when) {
  device_->engine().forget_timer(timer_);
  timer_ = device_->engine().schedule(when, weak_from_this());
}

void ListenerImpl::on_timer(io::TimerId id) {
  const auto self = weak_from_this().lock();
  if (self == nullptr) return;
  const io::MutexLock lock(mutex_);
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
  const Instant now = io::now();
  half_open_.add(connection, now);
  device_->half_open().add(connection, now);
}

std::shared_ptr<ConnectionImpl> ListenerImpl::remove_half_open(const ConnectionImpl* who) {
  device_->half_open().remove(who);
  return half_open_.remove(who);
}

bool ListenerImpl::request_ready(ConnectionImpl& connection) {
  const io::MutexLock lock(mutex_);
  if (backlog_is_full() || held_.size() != 0) {
    held_.add(connection.shared_from_this(), io::now());
    return false;
  }
  remove_half_open(&connection);
  ++undelivered_;
  crowded_ = false;
  update_watch();
  return true;
}

void ListenerImpl::request_settled() {
  const io::MutexLock lock(mutex_);
  --undelivered_;
  update_watch();
  if (held_.size() == 0) return;
  // The caller holds a connection's mutex_, and others' are needed.
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
  const io::MutexLock lock(mutex_);
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
  const io::MutexLock lock(mutex_);
  held_.remove(&connection);
  std::shared_ptr<ConnectionImpl> out = remove_half_open(&connection);
  crowded_ = false;
  update_watch();
  return out;
}

}  // namespace weft::verbs
