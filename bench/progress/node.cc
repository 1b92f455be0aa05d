#include "node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace progress {

namespace {

constexpr std::size_t kBellOffset = 64;  // behind the message
constexpr std::size_t kOutOffset = 128;
constexpr std::size_t kReceiveOffset = kOutOffset + kMessageBytes;
constexpr unsigned kSendDepth = 256;
constexpr unsigned kReads = 16;
constexpr int kResolveMs = 5000;

// Where the other side may write; the private data of a connection.
struct Offer {
  std::uint64_t address;
  std::uint64_t rkey;
};

}  // namespace

// Queue --------------------------------------------------------------------------------------

Queue::Queue(Node& node, Wait wait, ibv_comp_channel* channel, unsigned depth)
    : wait_(wait), channel_(channel), own_channel_(channel == nullptr && wait != Wait::kPoll) {
  if (own_channel_) {
    channel_ = ibv_create_comp_channel(node.context());
    if (channel_ == nullptr) die("cannot create a completion channel (%s)", strerror(errno));
  }
  cq_ = ibv_create_cq(node.context(), static_cast<int>(depth), nullptr, channel_, 0);
  if (cq_ == nullptr) die("cannot create a completion queue (%s)", strerror(errno));
  if (wait != Wait::kEpoll) return;
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event = {EPOLLIN, {}};
  if (epoll_ < 0 || fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0 ||
      epoll_ctl(epoll_, EPOLL_CTL_ADD, channel_->fd, &event) != 0) {
    die("cannot watch a completion channel (%s)", strerror(errno));
  }
}

Queue::~Queue() {
  if (epoll_ >= 0) ::close(epoll_);
  ibv_destroy_cq(cq_);
  if (own_channel_) ibv_destroy_comp_channel(channel_);
}

unsigned Queue::poll(ibv_wc* wcs, unsigned count) {
  const int got = ibv_poll_cq(cq_, static_cast<int>(count), wcs);
  if (got < 0) die("cannot poll a completion queue");
  for (int i = 0; i < got; ++i) {
    if (wcs[i].status != IBV_WC_SUCCESS) {
      die("a work request failed: %s", ibv_wc_status_str(wcs[i].status));
    }
  }
  return static_cast<unsigned>(got);
}

unsigned Queue::take(ibv_wc* wcs, unsigned count) {
  for (;;) {
    const unsigned got = poll(wcs, count);
    if (got != 0) return got;
    if (wait_ == Wait::kPoll) continue;
    if (armed_) {
      sleep();
    } else if (ibv_req_notify_cq(cq_, 0) != 0) {
      die("cannot arm a completion queue");
    }
    armed_ = !armed_;
  }
}

void Queue::sleep() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  for (;;) {
    epoll_event event;
    if (epoll_ >= 0 && epoll_wait(epoll_, &event, 1, -1) < 0 && errno != EINTR) die("epoll_wait");
    if (ibv_get_cq_event(channel_, &cq, &context) == 0) break;
    if (epoll_ < 0 || errno != EAGAIN) die("cannot get an event (%s)", strerror(errno));
  }
  if (cq != cq_) die("an event of a queue that was not armed");
  ibv_ack_cq_events(cq, 1);
}

// Link ---------------------------------------------------------------------------------------

std::uint64_t* Link::word(std::size_t offset) const {
  return reinterpret_cast<std::uint64_t*>(slice_ + offset);
}

void Link::post(ibv_send_wr& wr, bool signaled) {
  wr.wr_id = static_cast<std::uint64_t>(number) << 32;
  wr.num_sge = 1;
  if (signaled) wr.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(id->qp, &wr, &bad);
  if (error != 0) die("connection %u: cannot post (%s)", number, strerror(error));
}

void Link::stamp(std::uint64_t value) {
  *word(kOutOffset) = value;
  *word(kOutOffset + kMessageBytes - 8) = value;
}

void Link::send(std::uint64_t value) {
  stamp(value);
  ibv_sge sge = {reinterpret_cast<std::uint64_t>(slice_ + kOutOffset), kMessageBytes, lkey_};
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE;
  post(wr, true);
}

void Link::write_message(std::uint64_t value, bool signaled) {
  stamp(value);
  ibv_sge sge = {reinterpret_cast<std::uint64_t>(slice_ + kOutOffset), kMessageBytes, lkey_};
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = peer_address_;
  wr.wr.rdma.rkey = peer_rkey_;
  post(wr, signaled);
}

void Link::write_bell(std::uint64_t value, bool signaled) {
  ibv_sge sge = {reinterpret_cast<std::uint64_t>(&value), sizeof value, 0};
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = peer_address_ + kBellOffset;
  wr.wr.rdma.rkey = peer_rkey_;
  post(wr, signaled);
}

void Link::read(void* to, std::uint32_t lkey, std::uint32_t length, std::uint64_t from,
                std::uint32_t rkey) {
  ibv_sge sge = {reinterpret_cast<std::uint64_t>(to), length, lkey};
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.wr.rdma.remote_addr = from;
  wr.wr.rdma.rkey = rkey;
  post(wr, true);
}

void Link::post_receive(unsigned slot) {
  const auto at = reinterpret_cast<std::uint64_t>(slice_ + kReceiveOffset);
  ibv_sge sge = {at + std::uint64_t{slot} * kMessageBytes, kMessageBytes, lkey_};
  ibv_recv_wr wr = {};
  wr.wr_id = kLast | static_cast<std::uint64_t>(number) << 32 | slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(id->qp, &wr, &bad) != 0) die("connection %u: cannot post a receive", number);
}

std::uint64_t Link::receive(const ibv_wc& wc) {
  const auto slot = static_cast<unsigned>(wc.wr_id & 0xffffffff);
  const std::size_t offset = kReceiveOffset + std::size_t{slot} * kMessageBytes;
  const std::uint64_t first = *word(offset);
  const std::uint64_t last = *word(offset + kMessageBytes - 8);
  ++received;
  if (wc.byte_len != kMessageBytes || first != last || (first & ~kLast) != received) {
    die("connection %u: %u bytes with the numbers %llu and %llu came in place of message %llu",
        number, wc.byte_len, static_cast<unsigned long long>(first & ~kLast),
        static_cast<unsigned long long>(last & ~kLast), static_cast<unsigned long long>(received));
  }
  post_receive(slot);
  return first;
}

std::uint64_t Link::await_bell(std::uint64_t value) const {
  const std::atomic_ref<std::uint64_t> bell(*word(kBellOffset));
  for (;;) {
    const std::uint64_t seen = bell.load(std::memory_order_acquire);
    if ((seen & ~kLast) == value) return seen;
  }
}

std::uint64_t Link::message_word(unsigned index) const {
  return std::atomic_ref(*word(std::size_t{index} * 8)).load(std::memory_order_acquire);
}

// Node ---------------------------------------------------------------------------------------

Node::Node(const Run& run, unsigned links, unsigned receives)
    : run_(run),
      receives_(receives),
      slice_bytes_(kReceiveOffset + std::size_t{receives} * kMessageBytes),
      memory_bytes_(slice_bytes_ * links) {
  int count = 0;
  ibv_context** devices = rdma_get_devices(&count);
  if (devices == nullptr || count == 0) die("there is no RDMA device; start it by `weft run`");
  context_ = devices[0];
  rdma_free_devices(devices);
  pd_ = ibv_alloc_pd(context_);
  if (pd_ == nullptr) die("cannot make a protection domain (%s)", strerror(errno));
  memory_ = static_cast<std::uint8_t*>(
      mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory_ == MAP_FAILED) die("no memory");
  mr_ = register_memory(memory_, memory_bytes_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  active_ = rdma_create_event_channel();
  passive_ = rdma_create_event_channel();
  sockaddr_in local = {};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (active_ == nullptr || passive_ == nullptr ||
      rdma_create_id(passive_, &listener_, nullptr, RDMA_PS_TCP) != 0 ||
      rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&local)) != 0 ||
      rdma_listen(listener_, 16) != 0) {
    die("cannot listen (%s)", strerror(errno));
  }
  port_ = ntohs(rdma_get_src_port(listener_));
  if (run.side == kServer) run.shared.port = port_;
}

Node::~Node() {
  rdma_destroy_id(listener_);
  rdma_destroy_event_channel(active_);
  rdma_destroy_event_channel(passive_);
  ibv_dereg_mr(mr_);
  munmap(memory_, memory_bytes_);
  ibv_dealloc_pd(pd_);
}

ibv_mr* Node::register_memory(void* memory, std::size_t bytes, int access) const {
  ibv_mr* mr = ibv_reg_mr(pd_, memory, bytes, access);
  if (mr == nullptr) die("cannot register memory (%s)", strerror(errno));
  return mr;
}

// The next one, if it is of that type and connection (null: any); others are kept for later, since
// nothing says in which order events of several connections come.
rdma_cm_event* Node::next_event(rdma_event_channel* channel, rdma_cm_event_type type,
                                rdma_cm_id* id) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) die("no event of rdma_cm (%s)", strerror(errno));
  if (event->event == type && (id == nullptr || event->id == id)) return event;
  switch (event->event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_DISCONNECTED: early_.push_back(event); break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT: rdma_ack_cm_event(event); break;
    default:
      die("%s (status %d) came in place of %s", rdma_event_str(event->event), event->status,
          rdma_event_str(type));
  }
  return nullptr;
}

rdma_cm_event* Node::expect(rdma_event_channel* channel, rdma_cm_event_type type, rdma_cm_id* id) {
  for (std::size_t i = 0; i < early_.size(); ++i) {
    rdma_cm_event* event = early_[i];
    if (event->event != type || (id != nullptr && event->id != id)) continue;
    early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(i));
    return event;
  }
  rdma_cm_event* event = nullptr;
  while (event == nullptr) event = next_event(channel, type, id);
  return event;
}

Link& Node::open(rdma_cm_id* id, Queue& queue) {
  unsigned number = 0;
  while (number < links_.size() && links_[number]->id != nullptr) ++number;
  if (number == links_.size()) links_.push_back(std::make_unique<Link>());
  if (slice_bytes_ * (number + 1) > memory_bytes_) die("too many connections");
  Link& link = *links_[number];
  link = {};
  link.id = id;
  link.number = number;
  link.slice_ = memory_ + slice_bytes_ * number;
  link.lkey_ = mr_->lkey;
  memset(link.slice_, 0, slice_bytes_);
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = queue.cq();
  attributes.recv_cq = queue.cq();
  attributes.cap.max_send_wr = kSendDepth;
  attributes.cap.max_recv_wr = receives_;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = kMessageBytes;
  attributes.qp_type = IBV_QPT_RC;
  if (rdma_create_qp(id, pd_, &attributes) != 0) {
    die("connection %u: cannot create a queue pair (%s)", number, strerror(errno));
  }
  for (unsigned slot = 0; slot < receives_; ++slot) link.post_receive(slot);
  return link;
}

namespace {

rdma_conn_param parameters(const Offer& mine) {
  rdma_conn_param parameters = {};
  parameters.private_data = &mine;
  parameters.private_data_len = sizeof mine;
  parameters.responder_resources = kReads;
  parameters.initiator_depth = kReads;
  return parameters;
}

}  // namespace

void Node::take_offer(Link& link, const rdma_cm_event& event) {
  Offer offer;
  if (event.param.conn.private_data_len < sizeof offer) die("the peer says nothing of its memory");
  memcpy(&offer, event.param.conn.private_data, sizeof offer);
  link.peer_address_ = offer.address;
  link.peer_rkey_ = static_cast<std::uint32_t>(offer.rkey);
  run_.tally().messages.fetch_add(1, std::memory_order_relaxed);
}

Link& Node::begin_connect(Queue& queue, std::uint16_t port) {
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(port);
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(active_, &id, nullptr, RDMA_PS_TCP) != 0 ||
      rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&peer), kResolveMs) != 0) {
    die("cannot resolve the address (%s)", strerror(errno));
  }
  rdma_ack_cm_event(expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED));
  if (rdma_resolve_route(id, kResolveMs) != 0) die("cannot resolve the route");
  rdma_ack_cm_event(expect(active_, RDMA_CM_EVENT_ROUTE_RESOLVED));
  Link& link = open(id, queue);
  const Offer mine = {reinterpret_cast<std::uint64_t>(link.slice_), mr_->rkey};
  rdma_conn_param conn = parameters(mine);
  if (rdma_connect(id, &conn) != 0) die("cannot connect (%s)", strerror(errno));
  return link;
}

void Node::end_connect(Link& link) {
  rdma_cm_event* event = expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  take_offer(link, *event);
  rdma_ack_cm_event(event);
}

Link& Node::connect(Queue& queue) {
  while (run_.shared.port == 0) nap(1000);
  Link& link = begin_connect(queue, static_cast<std::uint16_t>(run_.shared.port));
  end_connect(link);
  return link;
}

Link& Node::accept(Queue& queue) {
  rdma_cm_event* event = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
  Link& link = open(event->id, queue);
  take_offer(link, *event);
  rdma_ack_cm_event(event);
  const Offer mine = {reinterpret_cast<std::uint64_t>(link.slice_), mr_->rkey};
  rdma_conn_param conn = parameters(mine);
  if (rdma_accept(link.id, &conn) != 0) die("cannot accept (%s)", strerror(errno));
  rdma_ack_cm_event(expect(passive_, RDMA_CM_EVENT_ESTABLISHED, link.id));
  return link;
}

Node::Loop Node::loop(Queue& queue) {
  Link& active = begin_connect(queue, port_);
  Link& passive = accept(queue);
  end_connect(active);
  return {&active, &passive};
}

void Node::await_disconnect(const Link& link) {
  rdma_ack_cm_event(expect(passive_, RDMA_CM_EVENT_DISCONNECTED, link.id));
}

void Node::finish() {
  run_.barrier();
  for (auto& link : links_) close(*link);
}

void Node::close(Link& link) {
  if (link.id == nullptr) return;
  std::erase_if(early_, [&](rdma_cm_event* event) {
    if (event->id != link.id) return false;
    rdma_ack_cm_event(event);
    return true;
  });
  rdma_disconnect(link.id);
  rdma_destroy_qp(link.id);
  rdma_destroy_id(link.id);
  link.id = nullptr;
}

void Node::close(Link& link, Queue& queue) {
  close(link);
  // Its flushed receives, which a driver may leave in the queue.
  ibv_wc wcs[8];
  while (ibv_poll_cq(queue.cq(), 8, wcs) > 0) {
  }
}

}  // namespace progress
