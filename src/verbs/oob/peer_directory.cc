#include "verbs/oob/peer_directory.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <weft/limits.h>
#include <weft/system_error.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "io/socket.h"
#include "os/clock.h"
#include "os/log.h"
#include "roce/greeting.h"
#include "roce/qp_number.h"
#include "verbs/oob/ip_marks.h"
#include "verbs/random.h"

namespace weft::verbs {

namespace {

constexpr int kDatagramBuffer = 8 << 20;
constexpr int kAcceptsPerRound = 64;
// From the accepted connection to the whole hello.
constexpr Duration kHelloLimit{2'000'000'000};
// A listener that the kernel gives no descriptor for is left alone for so long.
constexpr Duration kAcceptPause{100'000'000};

// All addresses of both families, or of IPv4 where the machine has no other.
SocketAddress everywhere() {
  const os::Fd probe(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return SocketAddress::any(!probe && errno == EAFNOSUPPORT ? AF_INET : AF_INET6, 0);
}

// For an address that means something on one link only.
std::uint32_t interface_of(const SocketAddress& address) {
  if (address.family() != AF_INET6) return 0;
  return reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_scope_id;
}

}  // namespace

struct PeerDirectory::Port final : io::Handler, std::enable_shared_from_this<Port> {
  Port(PeerDirectory& o, std::uint16_t n, os::Fd fd) : owner(o), number(n), socket(std::move(fd)) {
    for (std::uint16_t i = roce::kIndexMin; i <= roce::kIndexMax; ++i) free.push_back(i);
  }
  // Oldest first.
  [[nodiscard]] std::uint16_t take_index() {
    const std::uint16_t index = free.front();
    free.erase(free.begin());
    return index;
  }
  void on_io(std::uint32_t /*events*/) override {
    const auto keep = owner.device();
    if (keep == nullptr) return;
    for (int i = 0; i < kAcceptsPerRound; ++i) {
      if (!owner.accept_one(*this)) return;
    }
  }
  void on_timer(io::TimerId /*id*/) override {
    const auto keep = owner.device();
    if (keep != nullptr) owner.on_timer_of(*this);
  }
  [[nodiscard]] bool is_idle() const { return free.size() == kIndices; }

  static constexpr std::size_t kIndices = roce::kIndexMax - roce::kIndexMin + 1;
  PeerDirectory& owner;
  const std::uint16_t number;
  // Guarded by the owner's mutex_.
  os::Fd socket;  // none: closed
  io::TimerId timer = 0;
  std::vector<std::uint16_t> free;  // with room for all: to give one back needs no memory
  std::uint32_t datagrams = 0;      // the number that has the UDP socket of this port, or 0
  bool without_datagrams = false;   // another program has that
};

// One who has connected and not said yet whom it wants. Served on the engine's thread only.
struct PeerDirectory::Arrival final : io::Handler {
  Arrival(PeerDirectory& o, os::Fd fd, const SocketAddress& from)
      : owner(o),
        socket(std::move(fd)),
        source(from),
        greeting(roce::Greeting::listener(o.sealer())) {}
  void on_io(std::uint32_t /*events*/) override {
    const auto keep = owner.device();
    if (keep == nullptr) return;
    if (owner.is_wanted(*this)) owner.settle(*this);
  }
  void on_timer(io::TimerId /*id*/) override {
    const auto keep = owner.device();
    if (keep == nullptr) return;
    if (!owner.is_wanted(*this)) return;
    owner.forget(*this);
    owner.device_.note_refused(LogLevel::kInfo, source.shown().view(), "no hello in time");
  }

  PeerDirectory& owner;
  os::Fd socket;
  const SocketAddress source;
  roce::Greeting greeting;
  io::TimerId timer = 0;
};

Result<std::unique_ptr<PeerDirectory>> PeerDirectory::create(DeviceImpl& device) {
  const Config& config = device.config();
  const auto first = gid_address(config);
  if (!first) {
    os::log(LogLevel::kError, "gid = '{}', device = '{}': {}", config.gid, config.device,
            first.error() == Error::kNotFound
                ? "no such address or interface of this machine, or it is down"
                : describe(first.error()));
    return fail(first.error());
  }
  std::unique_ptr<HelloSecret> secret;
  if (!device.config().roce_secret.empty()) {
    auto made = HelloSecret::create(device.config().roce_secret);
    if (!made) return fail(made.error());
    secret = std::move(*made);
  }
  const SocketAddress place = config.gid.empty() ? everywhere() : *first;
  return std::unique_ptr<PeerDirectory>(
      new PeerDirectory(device, *first, place, std::move(secret)));
}

PeerDirectory::PeerDirectory(DeviceImpl& device, const SocketAddress& first,
                             const SocketAddress& place, std::unique_ptr<HelloSecret> secret)
    : device_(device),
      own_{gid_of(first), interface_of(first)},
      place_(place),
      secret_(std::move(secret)) {}

// Callbacks take mutex_, so their ends are awaited without it.
PeerDirectory::~PeerDirectory() {
  for (const auto& port : ports_) {
    device_.engine().remove(port->socket.get());
    device_.engine().cancel(port->timer);
  }
  for (const auto& port : closed_) {
    device_.engine().cancel(port->timer);
    device_.engine().wait_for(port.get());
  }
  HalfOpen<Arrival>::Entries arrivals;
  {
    const os::MutexLock lock(mutex_);
    arrivals = arrivals_.remove_all();
  }
  for (const auto& [arrival, since] : arrivals) {
    device_.engine().wait_for(arrival.get());  // later callbacks find that they are not wanted
    device_.engine().remove(arrival->socket.get());
    device_.engine().cancel(arrival->timer);
  }
}

// --- numbers ---

Result<os::Fd> PeerDirectory::open_listener(std::uint16_t port) {
  auto socket = io::open_socket(place_.family());
  if (!socket) return fail(socket.error());
  SocketAddress local = place_;
  local.set_port(port);
  // Buffers decide the window scale, and accepted sockets inherit them.
  io::tune_before_connect(socket->get(), device_.config());
  if (auto bound = io::bind_socket(socket->get(), local, false, !local.is_any()); !bound) {
    return fail(bound.error());
  }
  if (auto listens = io::listen_socket(socket->get()); !listens) {
    return fail(listens.error());
  }
  return socket;
}

// From a random place in the range on, so that processes do not queue for the same ports.
Status PeerDirectory::open_port() {
  const std::uint32_t first = device_.config().roce_port_min;
  const std::uint32_t count = device_.config().roce_port_max - first + 1U;
  const std::uint32_t start = random_u32() % count;
  const auto refuse = [&](Error error, std::string_view why) {
    os::log(LogLevel::kError,
            "no number for another queue pair: roce_ports {}-{} at {}: {}; name a longer range",
            first, first + count - 1, place_.shown().view(), why);
    return fail(error);
  };
  if (ports_.size() >= count) {
    return refuse(Error::kLimitExceeded,
                  "this process has them all, with 510 queue pairs behind each, one of them UD");
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::uint16_t>(first + (start + i) % count);
    auto socket = open_listener(number);
    if (!socket && socket.error() == Error::kAddressInUse) continue;
    if (!socket) return fail(socket.error());
    closed_.reserve(closed_.size() + ports_.size() + 1);  // to close one needs no memory
    ports_.push_back(std::make_shared<Port>(*this, number, std::move(*socket)));
    Port& port = *ports_.back();
    if (auto added = device_.engine().add(port.socket.get(), EPOLLIN, ports_.back()); !added) {
      ports_.pop_back();
      return added;
    }
    return {};
  }
  return refuse(Error::kAddressInUse, "other programs have all that this process has not");
}

Result<std::uint32_t> PeerDirectory::take_number() {
  const os::MutexLock lock(mutex_);
  auto with_room = std::ranges::find_if(ports_, [](const auto& p) { return !p->free.empty(); });
  if (with_room == ports_.end()) {
    if (auto opened = open_port(); !opened) return fail(opened.error());
    with_room = ports_.end() - 1;
  }
  Port& port = **with_room;
  return roce::to_number({port.number, port.take_index()});
}

//   kAddressInUse   the port is another's
Result<os::Fd> PeerDirectory::open_datagrams(const Port& port) const {
  os::Fd socket = os::Fd::closed_in_child(
      ::socket(place_.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail(system_error(errno));
  SocketAddress local = place_;
  local.set_port(port.number);
  if (auto bound = io::bind_socket(socket.get(), local, false, !local.is_any()); !bound) {
    return fail(bound.error());
  }
  want_marks(socket.get(), place_.family());
  // The buffer holds datagrams while the receiver waits for the CPU. Only root gets all of it.
  const int bytes = kDatagramBuffer;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0) {
    static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes));
  }
  return socket;
}

Result<PeerDirectory::DatagramNumber> PeerDirectory::take_datagram_number() {
  const os::MutexLock lock(mutex_);
  for (std::size_t i = 0;; ++i) {
    if (i == ports_.size()) {
      if (auto opened = open_port(); !opened) return fail(opened.error());
    }
    Port& port = *ports_[i];
    if (port.datagrams != 0 || port.without_datagrams || port.free.empty()) continue;
    auto socket = open_datagrams(port);
    if (!socket && socket.error() != Error::kAddressInUse) return fail(socket.error());
    port.without_datagrams = !socket.has_value();
    if (!socket) continue;
    port.datagrams = roce::to_number({port.number, port.take_index()});
    return DatagramNumber{port.datagrams, std::move(*socket)};
  }
}

void PeerDirectory::free_number(std::uint32_t number) {
  const roce::QpNumber parts = roce::split_number(number);
  const os::MutexLock lock(mutex_);
  answerers_.erase(number);
  const auto port =
      std::ranges::find_if(ports_, [&](const auto& p) { return p->number == parts.port; });
  if (port == ports_.end()) return;
  (*port)->free.push_back(parts.index);
  if ((*port)->datagrams == number) (*port)->datagrams = 0;
  if ((*port)->is_idle() && ports_.size() > 1) close_port(port);
}

// At once, since the descriptor may be needed. A callback that runs now finds that it is closed.
void PeerDirectory::close_port(std::vector<std::shared_ptr<Port>>::iterator port) {
  Port& closed = **port;
  device_.engine().forget(closed.socket.get());
  device_.engine().forget_timer(closed.timer);
  closed.socket.reset();
  // On the engine's thread no other callback of its runs. Without a timer it stays for longer.
  closed.timer = device_.engine().schedule(os::now(), *port);
  closed_.push_back(std::move(*port));
  ports_.erase(port);
}

void PeerDirectory::on_timer_of(Port& port) {
  const os::MutexLock lock(mutex_);
  if (port.socket) {
    static_cast<void>(device_.engine().modify(port.socket.get(), EPOLLIN));
  } else {
    std::erase_if(closed_, [&](const auto& one) { return one.get() == &port; });
  }
}

void PeerDirectory::publish(std::uint32_t number, std::weak_ptr<HelloAnswerer> answerer) {
  const os::MutexLock lock(mutex_);
  answerers_[number] = std::move(answerer);
}

std::shared_ptr<Device> PeerDirectory::device() const { return device_.weak_from_this().lock(); }

std::shared_ptr<HelloAnswerer> PeerDirectory::find(std::uint32_t number) {
  const os::MutexLock lock(mutex_);
  const auto found = answerers_.find(number);
  return found == answerers_.end() ? nullptr : found->second.lock();
}

// --- arrivals, on the engine's thread ---

PeerDirectory::Accepted PeerDirectory::accept(Port& port, os::Fd& socket, SocketAddress& source) {
  const os::MutexLock lock(mutex_);
  if (!port.socket) return Accepted::kNone;
  auto accepted = io::accept_socket(port.socket.get(), source);
  if (accepted) {
    socket = std::move(*accepted);
    return Accepted::kOne;
  }
  const bool no_descriptor = accepted.error() == Error::kLimitExceeded;
  if (!no_descriptor && accepted.error() != Error::kNoSpace) {
    return accepted.error() == Error::kConnectionLost ? Accepted::kGone : Accepted::kNone;
  }
  // Without descriptors the kernel reports the same error when no connection waits.
  if (!io::connection_waits(port.socket.get())) return Accepted::kNone;
  return no_descriptor ? Accepted::kNoDescriptor : Accepted::kNoMemory;
}

// False: no more for now.
bool PeerDirectory::accept_one(Port& port) {
  SocketAddress source;
  os::Fd socket;
  const Accepted accepted = accept(port, socket, source);
  if (accepted == Accepted::kNone) return false;
  if (accepted == Accepted::kGone) return true;
  if (accepted == Accepted::kNoDescriptor && make_room()) return true;
  if (accepted != Accepted::kOne) {
    os::log(LogLevel::kError, "the kernel cannot accept: peers of wired queue pairs have to wait");
    const os::MutexLock lock(mutex_);
    if (!port.socket) return false;
    port.timer = device_.engine().schedule(os::now() + kAcceptPause, port.weak_from_this());
    // Without a timer nobody would look again: epoll reports it at once.
    if (port.timer != 0) static_cast<void>(device_.engine().modify(port.socket.get(), 0));
    return false;
  }
  // Where there is no memory for it, it is closed, and tries again.
  const auto arrival = std::make_shared<Arrival>(*this, std::move(socket), source.unmapped());
  std::shared_ptr<Arrival> oldest;
  {
    const os::MutexLock lock(mutex_);
    if (arrivals_.size() >= half_open_limit()) oldest = arrivals_.oldest();
    arrivals_.add(arrival, os::now());
  }
  arrival->timer = device_.engine().schedule(os::now() + kHelloLimit, arrival);
  if (arrival->timer == 0 || !device_.engine().add(arrival->socket.get(), EPOLLIN, arrival)) {
    forget(*arrival);
  }
  if (oldest != nullptr) give_way(*oldest);
  return true;
}

bool PeerDirectory::make_room() {
  std::shared_ptr<Arrival> oldest;
  {
    const os::MutexLock lock(mutex_);
    oldest = arrivals_.oldest();
  }
  if (oldest == nullptr) return false;
  give_way(*oldest);
  return true;
}

// Its hello may be there and not read yet. A queue pair whose connection is reset here tries again.
void PeerDirectory::give_way(Arrival& arrival) {
  settle(arrival);
  if (!is_wanted(arrival)) return;
  forget(arrival);
  io::close_with_reset(std::move(arrival.socket));
  device_.note_refused(LogLevel::kWarning, arrival.source.shown().view(),
                       "it sent no hello, and others wait for its place");
}

void PeerDirectory::forget(const Arrival& arrival) {
  if (arrival.socket) device_.engine().forget(arrival.socket.get());
  device_.engine().forget_timer(arrival.timer);
  const os::MutexLock lock(mutex_);
  arrivals_.remove(&arrival);
}

bool PeerDirectory::is_wanted(const Arrival& arrival) {
  const os::MutexLock lock(mutex_);
  return arrivals_.contains(&arrival);
}

void PeerDirectory::settle(Arrival& arrival) {
  std::array<std::uint8_t, roce::Hello::kSize> buffer;
  const ssize_t n =
      ::recv(arrival.socket.get(), buffer.data(), arrival.greeting.missing(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return forget(arrival);
  arrival.greeting.received(std::span(buffer).first(static_cast<std::size_t>(n)));
  switch (arrival.greeting.state()) {
    case roce::GreetingState::kFailed:
      return refuse(arrival, "what came is no hello of a wired queue pair");
    case roce::GreetingState::kAsked: return answer(arrival);
    case roce::GreetingState::kSendingChallenge: break;
    case roce::GreetingState::kSendingAnswer: break;  // that the secret is another
    default: return;
  }
  if (!say(arrival)) return forget(arrival);
  if (arrival.greeting.state() != roce::GreetingState::kDeclined) return;
  refuse(arrival, "its roce_secret is another than here, or only one end has one");
}

// False: the peer has gone. An empty socket has room for every hello.
bool PeerDirectory::say(Arrival& arrival) {
  const auto out = arrival.greeting.to_send();
  const ssize_t n =
      ::send(arrival.socket.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n != static_cast<ssize_t>(out.size())) return false;
  arrival.greeting.sent(out.size());
  return true;
}

void PeerDirectory::refuse(Arrival& arrival, std::string_view why) {
  forget(arrival);
  device_.note_refused(LogLevel::kWarning, arrival.source.shown().view(), why);
}

void PeerDirectory::answer(Arrival& arrival) {
  const roce::Hello& hello = arrival.greeting.peer();
  roce::Hello mine;
  mine.crc = hello.crc;
  const SocketAddress local = io::local_address(arrival.socket.get()).unmapped();
  // Whom it names has to be whom it has called.
  const std::shared_ptr<HelloAnswerer> answerer =
      gid_of(local) == hello.to.gid ? find(hello.to.number) : nullptr;
  const roce::Verdict verdict = answerer == nullptr
                                    ? roce::Verdict::kNoSuchQp
                                    : answerer->consider(hello, gid_of(arrival.source), mine);
  arrival.greeting.answer(verdict, mine);
  const bool told = say(arrival);
  device_.engine().forget(arrival.socket.get());
  os::Fd socket = std::move(arrival.socket);
  forget(arrival);
  if (verdict == roce::Verdict::kNotYet && hello.from.gid != gid_of(arrival.source)) {
    device_.note_refused(LogLevel::kWarning, arrival.source.shown().view(),
                         "its GID is another address than the one it calls from (a NAT between?)");
  }
  if (verdict != roce::Verdict::kAccept) return;
  if (!told) return answerer->not_adopted();
  io::tune_connected(socket.get(), device_.config(), io::is_loopback_path(local, arrival.source));
  answerer->adopt(std::move(socket), hello);
}

}  // namespace weft::verbs
