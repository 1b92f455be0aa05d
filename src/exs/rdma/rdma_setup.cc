// Connections: from an address to an exchange of Hellos.
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "exs/rdma/rdma_socket.h"
#include "exs/tcp/tcp_socket.h"
#include "os/lock.h"

namespace weft::exs {
namespace {

constexpr int kResolveMs = 2000;
constexpr int kSendRequests = 256;
constexpr std::uint32_t kInlineWanted = 512;
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

RdmaSocket::RdmaSocket(Socket& socket) : s_(socket), engine_(Engine::instance()), cm_(engine_) {
  engine_.answer_requests(&RdmaSocket::on_request);
}

RdmaSocket::~RdmaSocket() { release(); }

int RdmaSocket::make_id() { return cm_.make(s_.shared_from_this()); }

int RdmaSocket::bind(const Address& address) {
  if (const int error = make_id(); error != 0) return error;
  Address copy = address;
  return rdma_bind_addr(cm_.id(), copy.get()) == 0 ? 0 : errno;
}

int RdmaSocket::listen(int backlog) {
  assert(cm_.id() != nullptr);
  if (const int error = listen_for_tcp(backlog); error != 0) return error;
  if (rdma_listen(cm_.id(), backlog) == 0) return 0;
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
  const bool named = source.set() && cm_.id()->route.addr.src_addr.sa_family == 0;
  if (rdma_resolve_addr(cm_.id(), named ? source.get() : nullptr, to.get(), kResolveMs) != 0) {
    return errno;
  }
  return 0;
}

int RdmaSocket::local(Address& out) const {
  out = cm_.id() != nullptr ? Address(&cm_.id()->route.addr.src_addr) : local_;
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
  if (s_.kind == Kind::kStream) {
    hello.ring_rkey = ring_mr_.rkey();
    hello.ring_addr = reinterpret_cast<std::uintptr_t>(ring_.data());
  }
  return hello;
}

int RdmaSocket::make_ring() {
  ring_ = Pages(s_.settings.ring_bytes);
  if (s_.kind == Kind::kPacket) return 0;
  ring_mr_ = Mr::create(device(), ring_.data(), ring_.size(),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  return ring_mr_ ? 0 : errno;
}

int RdmaSocket::make_qp() {
  const Settings& settings = s_.settings;
  if (cm_.find_device() == nullptr) return errno;
  const int depth = std::min(kSendRequests, device()->attributes().max_qp_wr);
  queue_.open(static_cast<std::size_t>(depth));
  queue_.report_every(settings.slots / 2U);
  CmConnection::Sizes sizes{static_cast<std::uint32_t>(depth), settings.slots, kInlineWanted};
  if (const int error = cm_.make_qp(sizes); error != 0) return error;
  inline_bytes_ = sizes.inline_bytes;
  if (const int error = make_ring(); error != 0) return error;
  const int error = slots_.create(device(), settings.slots, settings.immediate_bytes);
  if (error != 0) return error;
  mine_ = my_hello();
  return slots_.post_all(cm_.qp(), cm_.number()) ? 0 : ENOMEM;
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
  assert(mine_.slots != 0 && theirs_.slots == 0);
  if (hello.version != kProtocolVersion || hello.kind != s_.kind) return false;
  theirs_ = hello;
  if (s_.kind == Kind::kStream) {
    out_.emplace(hello.ring_bytes);
    in_.emplace(mine_.ring_bytes);
  } else {
    packets_out_.emplace(hello);
    packets_in_.emplace(mine_);
  }
  return true;
}

// ---- the connecting end

void RdmaSocket::resolved() {
  assert(!passive_);
  int error = make_qp();
  if (error == 0) {
    std::array<std::uint8_t, Hello::kSize> data{};
    encode(mine_, data);
    rdma_conn_param params = parameters(data.data(), data.size());
    if (rdma_connect(cm_.id(), &params) == 0) return;
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
  assert(cm_.has_qp() && theirs_.slots != 0);
  up_ = true;
  local_ = Address(&cm_.id()->route.addr.src_addr);
  peer_ = Address(&cm_.id()->route.addr.dst_addr);
  if (passive_) {
    announce_ = true;
    s_.advance(StateEvent::kConnected);
    return flush();
  }
  heard_ = true;
  queue_control(Type::kStart, 0, 0, 0);
  s_.connected(0);
  flush();
}

// ---- the listening end

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
  const int fd = ::socket(listener->domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return reject(id, Refusal::kBusy);

  auto socket = std::make_shared<Socket>(fd, listener->domain, listener->kind);
  const os::MutexLock lock(socket->mutex);
  socket->settings = settings;
  socket->advance(StateEvent::kRequested);
  auto owned = std::make_unique<RdmaSocket>(*socket);
  RdmaSocket& rdma = *owned;
  socket->provider = std::move(owned);
  Engine::instance().add(socket);
  rdma.passive_ = true;
  rdma.parent_ = listener;
  rdma.cm_.adopt(id, socket);
  listener->backlog.begin_one();
  int error = rdma.make_qp();
  if (error == 0 && !rdma.accept_hello(*hello)) error = EPROTO;
  if (error == 0) {
    std::array<std::uint8_t, Hello::kSize> data{};
    encode(rdma.mine_, data);
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
  if (gone_) return;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(cm_.id(), kResolveMs) != 0) refused(event);
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
