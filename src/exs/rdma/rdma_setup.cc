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

void* context_of(std::uint32_t number) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
}

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

RdmaSocket::RdmaSocket(Socket& socket) : s_(socket), engine_(Engine::instance()) {
  engine_.answer_requests(&RdmaSocket::on_request);
}

RdmaSocket::~RdmaSocket() { release(); }

int RdmaSocket::make_id() {
  if (number_ == 0) number_ = engine_.enroll(s_.shared_from_this());
  if (id_ != nullptr) return 0;
  if (rdma_create_id(engine_.cm_channel(), &id_, context_of(number_), RDMA_PS_TCP) != 0) {
    return errno;
  }
  return 0;
}

int RdmaSocket::bind(const Address& address) {
  if (const int error = make_id(); error != 0) return error;
  Address copy = address;
  return rdma_bind_addr(id_, copy.get()) == 0 ? 0 : errno;
}

int RdmaSocket::listen(int backlog) {
  assert(id_ != nullptr);
  if (const int error = listen_for_tcp(backlog); error != 0) return error;
  if (rdma_listen(id_, backlog) == 0) return 0;
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
  const bool named = source.set() && id_->route.addr.src_addr.sa_family == 0;
  if (rdma_resolve_addr(id_, named ? source.get() : nullptr, to.get(), kResolveMs) != 0) {
    return errno;
  }
  return 0;
}

int RdmaSocket::local(Address& out) const {
  out = id_ != nullptr ? Address(&id_->route.addr.src_addr) : local_;
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

int RdmaSocket::make_buffers() {
  const Settings& settings = s_.settings;
  ring_ = Pages(settings.ring_bytes);
  if (s_.kind == Kind::kStream) {
    ring_mr_ = Mr::create(device_, ring_.data(), ring_.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!ring_mr_) return errno;
  }
  const std::size_t least = kSegmentsMax * Segment::kSize;
  slot_bytes_ = Header::kSize + std::max<std::size_t>(settings.immediate_bytes, least);
  // A slot to send from may be as large as the peer's limit, which is known later. It is not larger
  // than our own limit.
  send_slot_bytes_ = slot_bytes_;
  slots_ = Pages(2UL * settings.slots * slot_bytes_);
  slots_mr_ = Mr::create(device_, slots_.data(), slots_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (!slots_mr_) return errno;
  for (int i = settings.slots; i > 0; --i) free_slots_.push_back(i - 1);
  queue_.report_every(settings.slots / 2U);
  return 0;
}

int RdmaSocket::post_slots() {
  read_slots_.reserve(s_.settings.slots);
  for (std::uint32_t i = 0; i < s_.settings.slots; ++i) read_slots_.push_back(i);
  if (!repost()) return ENOMEM;
  assert(credits_.untold() == s_.settings.slots);
  credits_ = {};  // the peer knows of these by the Hello
  // The peer has to have most of the slots all the time.
  repost_every_ = std::min<std::size_t>(kRepostMax, s_.settings.slots / kSlotsMin);
  return 0;
}

int RdmaSocket::make_qp() {
  assert(id_ != nullptr && number_ != 0 && !has_qp_ && shard_ == nullptr);
  device_ = engine_.device_of(id_->verbs);
  if (device_ == nullptr) return errno;
  const auto& limits = device_->attributes();
  const int depth = std::min(kSendRequests, limits.max_qp_wr);
  queue_.open(static_cast<std::size_t>(depth));
  shard_entries_ = depth + s_.settings.slots;
  shard_ = device_->take_shard(shard_entries_);
  if (shard_ == nullptr) return errno;
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = shard_->cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = static_cast<std::uint32_t>(depth);
  attr.cap.max_recv_wr = s_.settings.slots;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.cap.max_inline_data = kInlineWanted;
  if (rdma_create_qp(id_, device_->pd(), &attr) != 0) {
    attr.cap.max_inline_data = 0;
    if (rdma_create_qp(id_, device_->pd(), &attr) != 0) return errno;
  }
  has_qp_ = true;
  inline_bytes_ = attr.cap.max_inline_data;
  if (const int error = make_buffers(); error != 0) return error;
  mine_ = my_hello();
  return post_slots();
}

rdma_conn_param RdmaSocket::parameters(const std::uint8_t* data, std::size_t length) const {
  rdma_conn_param out{};
  out.private_data = data;
  out.private_data_len = static_cast<std::uint8_t>(length);
  out.responder_resources = reads(device_->attributes().max_qp_rd_atom);
  out.initiator_depth = reads(device_->attributes().max_qp_init_rd_atom);
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
    if (rdma_connect(id_, &params) == 0) return;
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
  assert(has_qp_ && theirs_.slots != 0);
  up_ = true;
  local_ = Address(&id_->route.addr.src_addr);
  peer_ = Address(&id_->route.addr.dst_addr);
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
    const auto waiting = static_cast<int>(listener->arrivals.size()) + listener->half_open.load();
    if (listener->state != State::kListening || listener->closing || waiting >= listener->backlog) {
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
  rdma.number_ = Engine::instance().enroll(socket);
  rdma.id_ = id;
  id->context = context_of(rdma.number_);
  listener->half_open.fetch_add(1);
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
    s_.closing = true;
    s_.closed(0);
  }
  return parent;
}

void RdmaSocket::on_cm(const CmEvent& event) {
  if (gone_) return;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id_, kResolveMs) != 0) refused(event);
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
