#include "files/server/data_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "files/protocol/token_proof.h"
#include "files/server/kept_files.h"
#include "files/server/leases.h"
#include "os/calling_host.h"
#include "os/say.h"

namespace weft::files {
namespace {

constexpr unsigned kDiskDepth = 512;
constexpr std::size_t kBackgroundThreads = 32;  // of many sessions: each has Laters::kMostRunning
constexpr std::size_t kDisposalThreads = 2;
constexpr std::uint32_t kPieceBytes = 256U << 10U;
constexpr int kBacklog = 256;
constexpr unsigned kLeastNewcomers = 8;
constexpr std::string_view kSocketDevices = "weft";    // weft0, weft1, ...
constexpr auto kSpin = std::chrono::microseconds(30);  // before sleeping
constexpr unsigned kStepsPerLook = 32;                 // between looks at new connections
// Then the sessions get their turn: a client that came with a crowd says hello meanwhile.
constexpr unsigned kEventsPerLook = 16;
constexpr auto kTimeForHello = std::chrono::milliseconds(20);

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(v4->sin_addr.s_addr) >> 24U == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return v6->sin6_addr.s6_addr[12] == 127;
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

// One line to stderr, which journald takes as it is.
void say(const std::string& line) { os::say("weft serve: %s\n", line.c_str()); }

}  // namespace

std::string text_of(const sockaddr* address) {
  char host[128] = "?";
  char port[16] = "?";
  const socklen_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return std::string(host) + " port " + port;
}

Outcome<std::unique_ptr<Server>> Server::create(ServeOptions options) {
  std::unique_ptr<Server> server(new Server(std::move(options)));
  Shared& shared = server->shared_;
  auto tree = shared.options.files.empty()
                  ? Tree::open(shared.options.folders, shared.options.writable)
                  : Tree::open_files(shared.options.files);
  if (!tree) return tl::unexpected(tree.error());
  shared.tree = std::move(*tree);
  auto disk = readsend::Disk::create(kDiskDepth);
  if (!disk) return failed(disk.error(), "cannot start");
  shared.disk = std::move(*disk);
  if (shared.options.log && shared.disk->engine() == readsend::Disk::Engine::kThreads) {
    say("no io_uring here; threads read and write the files");
  }
  if (const int error = shared.leases->open(); error != 0) return failed(error, "cannot start");
  shared.pipeline = std::make_unique<readsend::Pipeline>(*shared.disk, kPieceBytes);
  shared.disposal = Background::create(kDisposalThreads);
  shared.background = Background::create(kBackgroundThreads);
  if (!shared.disposal || !shared.background) return failed(errno, "cannot start");
  if (auto ready = server->listen(); !ready) return tl::unexpected(ready.error());
  return server;
}

Outcome<void> Server::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return failed(errno, "epoll");
  return {};
}

Outcome<void> Server::listen() {
  epoll_ = os::Fd(epoll_create1(EPOLL_CLOEXEC));
  stop_ = os::make_event();
  reload_ = os::make_event();
  events_ = rdma_create_event_channel();
  if (!epoll_ || !stop_ || !reload_ || events_ == nullptr) return failed(errno, "cannot start");
  fcntl(events_->fd, F_SETFL, fcntl(events_->fd, F_GETFL) | O_NONBLOCK);
  if (rdma_create_id(events_, &listener_, nullptr, RDMA_PS_TCP) != 0) {
    return failed(errno, "rdma_create_id");
  }
  const ServeOptions& o = shared_.options;
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(o.port);
  const int error =
      getaddrinfo(o.address.empty() ? nullptr : o.address.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return failed(EADDRNOTAVAIL, "cannot listen on " + o.address, gai_strerror(error));
  }
  // Prefer the wildcard of IPv6: it takes both families.
  const addrinfo* use = found;
  for (const addrinfo* a = found; o.address.empty() && a != nullptr; a = a->ai_next) {
    if (a->ai_family == AF_INET6) use = a;
  }
  const bool bound =
      rdma_bind_addr(listener_, use->ai_addr) == 0 && rdma_listen(listener_, kBacklog) == 0;
  const int why = errno;
  freeaddrinfo(found);
  if (!bound) {
    std::string reason;
    if (why == EADDRINUSE) reason = "the port is in use; choose another by --listen";
    if (why == ENODEV || why == EADDRNOTAVAIL) {
      reason = "no device of this machine has that address; choose another by --listen";
    }
    if (why == EACCES && o.port < IPPORT_RESERVED) {
      reason = "ports below 1024 are for root; choose another by --listen";
    }
    return failed(
        why,
        "cannot listen on " + (o.address.empty() ? "any address" : o.address) + ", port " + port,
        reason);
  }
  for (const int fd : {events_->fd, stop_.get(), reload_.get(), shared_.disk->fd(),
                       shared_.background->fd(), shared_.disposal->fd(), shared_.leases->fd()}) {
    if (auto ok = watch(fd); !ok) return ok;
  }
  return open_status();
}

// A server whose name is taken, or whose sandbox forbids Unix sockets, serves all the same.
Outcome<void> Server::open_status() {
  auto status = StatusPort::open(port());
  if (!status) {
    if (shared_.options.log) {
      say(status.error().text());
    }
    return {};
  }
  status_ = std::move(*status);
  return watch(status_.fd());
}

Server::~Server() {
  for (auto& session : sessions_) session->fail();
  while (shared_.disk != nullptr && shared_.disk->pending() != 0) shared_.disk->progress();
  shared_.background.reset();  // its work is for sessions
  sessions_.clear();
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  if (events_ != nullptr) rdma_destroy_event_channel(events_);
  ports_.clear();
}

std::uint16_t Server::port() const { return ntohs(rdma_get_src_port(listener_)); }

void Server::stop() const { os::raise_event(stop_.get()); }

void Server::reload() const { os::raise_event(reload_.get()); }

void Server::read_token_again() {
  os::lower_event(reload_.get());
  ServeOptions& o = shared_.options;
  if (o.token_file.empty()) return say("there is no token file to read again");
  auto token = read_token(o.token_file);
  if (!token) return say(token.error().text() + "; the token stays as it was");
  o.token = std::move(*token);
  say("the token was read again");
}

Outcome<void> Server::take_token(std::string token) {
  if (shared_.options.token.empty()) {
    return failed(EINVAL, "token", "this server was started without --token-file");
  }
  if (token.size() < kTokenLeast) {
    return failed(EINVAL, "token", "a token has at least 16 characters");
  }
  shared_.options.token = std::move(token);
  say("there is a new token");
  return {};
}

Outcome<void> Server::run() {
  Clock::time_point busy = Clock::now();
  for (unsigned steps = 1; !stopping_; ++steps) {
    if (step() != 0) {
      busy = Clock::now();
      if (steps % kStepsPerLook == 0) look_at(0);
    } else if (Clock::now() - busy > kSpin) {
      sleep();
      busy = Clock::now();
    }
  }
  return {};
}

// One round for everybody who may have something to do.
std::size_t Server::step() {
  std::size_t done = shared_.disk->progress() + shared_.background->progress();
  shared_.disposal->progress();
  const std::size_t count = sessions_.size();
  if (count != 0) first_ = (first_ + 1) % count;
  for (std::size_t i = 0; i < count; ++i) {
    Session& session = *sessions_[(first_ + i) % count];
    if (!session.hot) continue;
    done += session.poll() + session.pump();
  }
  done += shared_.pipeline->pump();
  done += shared_.disk->progress();
  bury();
  return done;
}

// Deletes sessions that have failed, once the disk no longer uses their memory.
void Server::bury() {
  std::erase_if(sessions_, [this](const std::unique_ptr<Session>& session) {
    if (!session->deletable()) return false;
    log("gone", session->id());
    return true;
  });
}

void Server::sleep() {
  std::size_t found = 0;
  for (auto& session : sessions_) {
    if (!session->hot) continue;
    session->arm();
    found += session->poll() + session->pump();
    session->hot = session->wants_pump();
  }
  found += shared_.pipeline->pump();
  found += shared_.disk->progress();
  // An armed queue reports only what comes after the arming, and the work just done may have
  // produced more. So every session is served once more.
  for (auto& session : sessions_) session->hot = session->hot || found != 0;
  bury();
  look_at(found != 0 ? 0 : time_left_ms());
}

int Server::time_left_ms() const {
  const bool any = std::any_of(sessions_.begin(), sessions_.end(),
                               [](const auto& session) { return session->has_deadline(); });
  return any || shared_.kept->has_deadline() || status_.has_deadline() ? 200 : -1;
}

void Server::look_at(int timeout_ms) {
  epoll_event ready[16];
  const int count = epoll_wait(epoll_.get(), ready, 16, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const int fd = ready[i].data.fd;
    if (fd == stop_.get()) {
      stopping_ = true;
    } else if (fd == reload_.get()) {
      read_token_again();
    } else if (fd == shared_.leases->fd()) {
      shared_.leases->give_back();
    } else if (fd == events_->fd) {
      connection_events();
    } else if (fd == shared_.disk->fd()) {
      shared_.disk->clear_event();
    } else if (fd == status_.fd()) {
      status_.answer({[this] { return status(); },
                      [this](std::string token) { return take_token(std::move(token)); }});
    } else {
      for (auto& port : ports_) {
        if (port->channel()->fd == fd) completion_events(*port);
      }
    }
  }
  const auto now = Clock::now();
  shared_.kept->expire(now);
  status_.tick(now);
  for (auto& session : sessions_) {
    if (session->has_deadline()) session->tick(now);
  }
}

void Server::completion_events(Port& port) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(port.channel(), &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);
    static_cast<Session*>(context)->hot = true;
  }
}

void Server::connection_events() {
  rdma_cm_event* event = nullptr;
  for (unsigned i = 0; i < kEventsPerLook; ++i) {
    if (newcomers_wait() || rdma_get_cm_event(events_, &event) != 0) return;
    const rdma_cm_event_type type = event->event;
    rdma_cm_id* id = event->id;
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      connect_request(id);
      continue;
    }
    if (type == RDMA_CM_EVENT_ESTABLISHED || id == listener_) continue;
    for (auto& session : sessions_) {
      if (session->id() == id) session->fail();
    }
  }
}

// Why a client is not served, or null.
const char* Server::refusal(rdma_cm_id* id) {
  if (shared_.ready >= shared_.options.max_clients) return "too many clients";
  if (shared_.options.open_access || !shared_.options.token.empty()) return nullptr;
  if (!is_loopback(rdma_get_peer_addr(id))) {
    return "only this machine is served without --token-file or --open";
  }
  // Whoever is served acts as the server's user.
  // A connection of one of Weft's devices is a socket of the process that made it. The sockets of
  // other devices belong to the kernel, if there are any.
  const std::string_view device = ibv_get_device_name(id->verbs->device);
  const bool is_socket = device.starts_with(kSocketDevices);
  const auto user =
      is_socket ? users_.user_of(rdma_get_peer_addr(id), rdma_get_local_addr(id)) : std::nullopt;
  if (!user) return "it cannot be told whose connection this is; use --token-file, or --open";
  if (*user == geteuid() || *user == 0) return nullptr;
  return "only the server's own user is served without --token-file or --open";
}

// Connections that have shown nothing yet have a limit of their own: the oldest of the host with
// the most of them makes room. So those who stand still there keep no client out, and a crowd from
// one host takes no place of another's. Null: there is room.
Session* Server::in_the_way() {
  const std::size_t most = std::max(kLeastNewcomers, shared_.options.max_clients / 4);
  struct Newcomers {
    os::CallingHost host{};
    std::size_t count = 0;
    Session* oldest = nullptr;
  };
  std::vector<Newcomers> hosts;
  std::size_t count = 0;
  for (auto& session : sessions_) {  // the oldest first
    if (session->ready() || session->dead()) continue;
    ++count;
    const os::CallingHost host = os::calling_host(rdma_get_peer_addr(session->id()));
    auto at =
        std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.host == host; });
    if (at == hosts.end()) at = hosts.insert(hosts.end(), {host, 0, session.get()});
    ++at->count;
  }
  if (count < most) return nullptr;
  return std::max_element(hosts.begin(), hosts.end(),
                          [](const auto& a, const auto& b) { return a.count < b.count; })
      ->oldest;
}

// Nobody makes room before he had the time to say something: then the next request waits.
bool Server::newcomers_wait() {
  const Session* const oldest = in_the_way();
  return oldest != nullptr && Clock::now() - oldest->created() < kTimeForHello;
}

void Server::connect_request(rdma_cm_id* id) {
  if (Session* const oldest = in_the_way(); oldest != nullptr) oldest->fail();
  const char* why = refusal(id);
  Port* port = why == nullptr ? port_for(id->verbs) : nullptr;
  Outcome<std::unique_ptr<Session>> session = failed(ENOMEM, "no device");
  if (port != nullptr) session = Session::create(shared_, *port, id);
  if (session) {
    rdma_conn_param parameters{};
    parameters.responder_resources = 16;
    parameters.initiator_depth = 16;
    parameters.retry_count = 7;
    parameters.rnr_retry_count = 7;
    if (rdma_accept(id, &parameters) == 0) {
      ++shared_.counters.clients;
      log("connected", id);
      sessions_.push_back(std::move(*session));
      return;
    }
    (*session)->fail();  // deletes the id too
    return;
  }
  const std::string reason = why != nullptr ? why : session.error().text();
  ++shared_.counters.refused_clients;
  log("refused", id, reason.c_str());
  rdma_reject(id, reason.data(),
              static_cast<std::uint8_t>(std::min<std::size_t>(reason.size(), 140)));
  rdma_destroy_id(id);
}

Port* Server::port_for(ibv_context* verbs) {
  for (auto& port : ports_) {
    if (port->verbs() == verbs) return port.get();
  }
  auto port = Port::create(verbs, shared_.options.staging_bytes);
  if (!port) {
    say(port.error().text());
    return nullptr;
  }
  if (!watch((*port)->channel()->fd)) return nullptr;
  ports_.push_back(std::move(*port));
  return ports_.back().get();
}

void Server::log(const char* what, rdma_cm_id* id, const char* why) const {
  if (!shared_.options.log) return;
  std::string line = "client " + text_of(rdma_get_peer_addr(id)) + " " + what;
  if (*why != '\0') line.append(": ").append(why);
  say(line);
}

}  // namespace weft::files
