// Connections: from an address to an exchange of Hellos.
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "exs/rdma/packet_flow.h"
#include "exs/rdma/rdma_socket.h"
#include "exs/rdma/stream_flow.h"
#include "exs/tcp/tcp_socket.h"
#include "os/fd.h"
#include "os/lock.h"

namespace weft::exs {
namespace {

constexpr int kResolveMs = 2000;
constexpr std::uint8_t kReadsMax = 16;

std::uint8_t reads(int most) {
  return static_cast<std::uint8_t>(std::clamp(most, 0, static_cast<int>(kReadsMax)));
}

void reject(rdma_cm_id* id, Refusal reason) {
  std::array<std::uint8_t, Reject::kSize> data{};
  encode({kProtocolVersion, reason}, data);
  rdma_reject(id, data.data(), data.size());
  Engine::instance().destroy_later(id);
}

}  // namespace

RdmaSocket::RdmaSocket(Socket& socket)
    : s_(socket), engine_(Engine::instance()), port_(socket, engine_) {
  if (s_.kind == Kind::kStream) {
    flow_ = std::make_unique<StreamFlow>(s_, port_);
  } else {
    flow_ = std::make_unique<PacketFlow>(s_, port_);
  }
  engine_.answer_requests(&RdmaSocket::on_request);
}

RdmaSocket::~RdmaSocket() { release(); }

int RdmaSocket::make_id() { return port_.cm().make(s_.shared_from_this()); }

int RdmaSocket::bind(const Address& address) {
  if (const int error = make_id(); error != 0) return error;
  Address copy = address;
  return rdma_bind_addr(port_.cm().id(), copy.get()) == 0 ? 0 : errno;
}

int RdmaSocket::listen(int backlog) {
  assert(port_.cm().id() != nullptr);
  if (const int error = listen_for_tcp(backlog); error != 0) return error;
  if (rdma_listen(port_.cm().id(), backlog) == 0) return 0;
  const int error = errno;
  tcp_listener_.reset();
  return error;
}

// The descriptor of the socket, which is no connection over RDMA, takes the peers with only TCP.
int RdmaSocket::listen_for_tcp(int backlog) {
  if (s_.settings.tcp_port == 0) return 0;
  Address address = s_.bound;
  const int port = s_.settings.tcp_port;
  address.set_port(htons(static_cast<std::uint16_t>(port == EXS_TCPPORT_ANY ? 0 : port)));
  auto tcp = std::make_unique<TcpSocket>(s_);
  int error = tcp->bind(address);
  if (error == 0) error = tcp->listen(backlog);
  if (error == 0) tcp_listener_ = std::move(tcp);
  return error;
}

void RdmaSocket::on_ready(std::uint32_t /*epoll_events*/) {
  accepts_posted();
  s_.changed();
}

void RdmaSocket::accepts_posted() {
  if (tcp_listener_ != nullptr) tcp_listener_->accepts_posted();
}

int RdmaSocket::connect(const Address& address) {
  if (const int error = make_id(); error != 0) return error;
  target_ = address;
  Address source = s_.bound;
  Address to = address;
  // A port of our own that bind() has taken stays ours: rdma_cm knows it already.
  const bool named = source.set() && port_.cm().id()->route.addr.src_addr.sa_family == 0;
  if (rdma_resolve_addr(port_.cm().id(), named ? source.get() : nullptr, to.get(), kResolveMs) !=
      0) {
    return errno;
  }
  return 0;
}

int RdmaSocket::local(Address& out) const {
  out = port_.cm().id() != nullptr ? Address(&port_.cm().id()->route.addr.src_addr) : local_;
  return out.set() ? 0 : ENOTCONN;
}

int RdmaSocket::peer(Address& out) const {
  if (!peer_.set()) return ENOTCONN;
  out = peer_;
  return 0;
}

Hello RdmaSocket::my_hello() const {
  Hello hello;
  hello.kind = s_.kind;
  hello.slots = s_.settings.slots;
  hello.messages = s_.settings.slots;
  hello.immediate_bytes = s_.settings.immediate_bytes;
  hello.ring_bytes = s_.settings.ring_bytes;
  return hello;
}

int RdmaSocket::make_qp() try {
  if (const int error = port_.make_qp(); error != 0) return error;
  Hello mine = my_hello();
  if (const int error = flow_->open(mine); error != 0) return error;
  port_.offer(mine);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

rdma_conn_param RdmaSocket::parameters(const std::uint8_t* data, std::size_t length) const {
  rdma_conn_param out{};
  out.private_data = data;
  out.private_data_len = static_cast<std::uint8_t>(length);
  out.responder_resources = reads(device()->attributes().max_qp_rd_atom);
  out.initiator_depth = reads(device()->attributes().max_qp_init_rd_atom);
  out.retry_count = 7;
  out.rnr_retry_count = 7;
  return out;
}

bool RdmaSocket::accept_hello(const Hello& hello) {
  if (hello.version != kProtocolVersion || hello.kind != s_.kind) return false;
  port_.agree(hello);
  flow_->start(port_.mine(), hello);
  return true;
}

// ---- the connecting end

void RdmaSocket::resolved() {
  assert(!passive_);
  int error = make_qp();
  if (error == 0) {
    std::array<std::uint8_t, Hello::kSize> data{};
    encode(port_.mine(), data);
    rdma_conn_param params = parameters(data.data(), data.size());
    if (rdma_connect(port_.cm().id(), &params) == 0) return;
    error = errno;
  }
  release();
  s_.connected(error);
}

void RdmaSocket::refused(const CmEvent& event) {
  assert(!passive_);
  const auto said = decode_reject(event.private_data);
  release();
  if (said) {
    const bool version = said->reason == Refusal::kVersion;
    log_line(s_, "the peer refuses the connection",
             version                          ? "it speaks another version of EXS"
             : said->reason == Refusal::kKind ? "its socket is of another type"
             : said->reason == Refusal::kBusy ? "its backlog is full"
                                              : "it does not understand the request");
    return s_.connected(version || said->reason == Refusal::kKind ? EPROTOTYPE : ECONNREFUSED);
  }
  const int error = event.type == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED
                    : event.status == -ETIMEDOUT         ? ETIMEDOUT
                                                         : EHOSTUNREACH;
  // Nobody who speaks EXS has answered: perhaps somebody with TCP does.
  if (s_.settings.provider != EXS_PROVIDER_AUTO || fall_back() != 0) s_.connected(error);
}

int RdmaSocket::fall_back() {
  Socket& socket = s_;
  const Address target = target_;
  auto tcp = std::make_unique<TcpSocket>(socket);
  int error = socket.bound.set() ? tcp->bind(socket.bound) : 0;
  if (error == 0) error = tcp->connect(target);
  if (error != 0) return error;
  // `this` is gone with the assignment.
  socket.provider = std::move(tcp);
  return 0;
}

void RdmaSocket::established() {
  if (s_.state != State::kConnecting) return;
  assert(port_.cm().has_qp() && port_.theirs().slots != 0);
  port_.up(!passive_);
  local_ = Address(&port_.cm().id()->route.addr.src_addr);
  peer_ = Address(&port_.cm().id()->route.addr.dst_addr);
  if (passive_) {
    announce_ = true;
    s_.advance(StateEvent::kConnected);
    return flush();
  }
  port_.queue_control(Type::kStart, 0, 0, 0);
  s_.connected(0);
  flush();
}

// ---- the listening end

// The socket of a connection that a peer has asked for by `id`. Null: what it needs is not there.
std::shared_ptr<Socket> RdmaSocket::requested(const std::shared_ptr<Socket>& listener,
                                              const Settings& settings, rdma_cm_id* id) try {
  os::Fd fd(::socket(listener->domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return nullptr;
  auto socket = std::make_shared<Socket>(fd.get(), listener->domain, listener->kind);
  const os::MutexLock lock(socket->mutex);
  socket->settings = settings;
  socket->advance(StateEvent::kRequested);
  auto owned = std::make_unique<RdmaSocket>(*socket);
  RdmaSocket& rdma = *owned;
  socket->provider = std::move(owned);
  rdma.passive_ = true;
  Engine& engine = Engine::instance();
  engine.add(socket);
  try {
    rdma.port_.cm().adopt(id, socket);
  } catch (const std::bad_alloc&) {
    engine.remove(fd.get(), socket.get());
    throw;
  }
  rdma.parent_ = listener;
  static_cast<void>(fd.release());  // Socket::closed() closes it
  return socket;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void RdmaSocket::on_request(const std::shared_ptr<Socket>& listener, const CmEvent& event) {
  rdma_cm_id* id = event.id;
  if (listener == nullptr) return reject(id, Refusal::kBusy);
  Settings settings;
  {
    const os::MutexLock lock(listener->mutex);
    if (listener->state != State::kListening || listener->end.closing() ||
        !listener->backlog.has_room()) {
      return reject(id, Refusal::kBusy);
    }
    settings = listener->settings;
  }
  const auto hello = decode_hello(event.private_data);
  if (!hello) return reject(id, Refusal::kMalformed);
  if (hello->version != kProtocolVersion) return reject(id, Refusal::kVersion);
  if (hello->kind != listener->kind) return reject(id, Refusal::kKind);
  const auto socket = requested(listener, settings, id);
  if (socket == nullptr) return reject(id, Refusal::kBusy);
  const os::MutexLock lock(socket->mutex);
  auto& rdma = static_cast<RdmaSocket&>(*socket->provider);
  listener->backlog.begin_one();
  int error = rdma.make_qp();
  if (error == 0 && !rdma.accept_hello(*hello)) error = EPROTO;
  if (error == 0) {
    std::array<std::uint8_t, Hello::kSize> data{};
    encode(rdma.port_.mine(), data);
    rdma_conn_param params = rdma.parameters(data.data(), data.size());
    params.initiator_depth =
        std::min<std::uint8_t>(params.initiator_depth, reads(event.initiator_depth));
    params.responder_resources =
        std::min<std::uint8_t>(params.responder_resources, reads(event.responder_resources));
    if (rdma_accept(id, &params) == 0) return;
    error = errno;
  }
  log_line(*socket, "cannot accept a connection", strerror(error));
  rdma.broke(error, nullptr);
}

std::shared_ptr<Socket> RdmaSocket::take_parent() {
  if (!announce_) return nullptr;
  announce_ = false;
  auto parent = leave_parent();
  if (parent == nullptr) {
    release();
    s_.end.close();
    s_.closed(0);
  }
  return parent;
}

void RdmaSocket::on_cm(const CmEvent& event) {
  if (port_.gone()) return;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(port_.cm().id(), kResolveMs) != 0) refused(event);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: return resolved();
    case RDMA_CM_EVENT_ESTABLISHED:
      if (!passive_) {
        const auto hello = decode_hello(event.private_data);
        if (!hello || !accept_hello(*hello)) {
          return broke(EPROTO, "the reply is not one of EXS");
        }
      }
      return established();
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      if (passive_) return broke(ECONNABORTED, nullptr);
      return refused(event);
    case RDMA_CM_EVENT_DISCONNECTED: return ended();
    case RDMA_CM_EVENT_DEVICE_REMOVAL: return broke(ENODEV, "the device is gone");
    default: return;
  }
}

}  // namespace weft::exs
