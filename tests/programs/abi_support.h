// For tests that are ordinary verbs programs: compiled against rdma-core's headers, linked with its
// libraries, run under `weft run`.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace weft::abi {

constexpr int kWaitMs = 20000;
// A number: the macro ibv_reg_mr mixes it with constants of another enumeration.
constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;

// weft0, opened; closed at the end.
class Opened {
 public:
  Opened() {
    ibv_device** list = ibv_get_device_list(nullptr);
    for (int i = 0; list != nullptr && list[i] != nullptr; ++i) {
      if (std::string_view(ibv_get_device_name(list[i])) == "weft0") {
        context_ = ibv_open_device(list[i]);
      }
    }
    if (list != nullptr) ibv_free_device_list(list);
  }
  ~Opened() {
    if (context_ != nullptr) ibv_close_device(context_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  [[nodiscard]] ibv_context* get() const { return context_; }

 private:
  ibv_context* context_ = nullptr;
};

inline ibv_qp_init_attr rc_attributes(ibv_cq* cq, std::uint32_t depth = 16) {
  ibv_qp_init_attr attr{};
  attr.send_cq = cq;
  attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = depth;
  attr.cap.max_recv_wr = depth;
  attr.cap.max_send_sge = 2;
  attr.cap.max_recv_sge = 2;
  return attr;
}

inline ibv_sge sge_of(const void* data, std::size_t length, const ibv_mr* mr) {
  return {reinterpret_cast<std::uintptr_t>(data), static_cast<std::uint32_t>(length),
          mr != nullptr ? mr->lkey : 0};
}

// Asks until `condition()` holds; false after kWaitMs.
template <typename Condition>
bool eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// Polls until there is a completion; false after kWaitMs.
inline bool next_completion(ibv_cq* cq, ibv_wc& wc) {
  int got = 0;
  return eventually([&] { return (got = ibv_poll_cq(cq, 1, &wc)) != 0; }) && got > 0;
}

inline bool readable(int fd, int timeout_ms = kWaitMs) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, timeout_ms) == 1 && (one.revents & POLLIN) != 0;
}

// One signaled Send, all of its payload in `sge`.
inline ibv_send_wr send_request(ibv_sge& sge, std::uint64_t wr_id = 0) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

inline sockaddr_in v4(const char* address, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  inet_pton(AF_INET, address, &out.sin_addr);
  return out;
}

inline sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

// The next event of a channel, acknowledged when it goes out of scope.
class NextEvent {
 public:
  explicit NextEvent(rdma_event_channel* channel) {
    if (!readable(channel->fd) || rdma_get_cm_event(channel, &event_) != 0) event_ = nullptr;
  }
  ~NextEvent() { ack(); }
  NextEvent(const NextEvent&) = delete;
  NextEvent& operator=(const NextEvent&) = delete;

  void ack() {
    if (event_ != nullptr) rdma_ack_cm_event(event_);
    event_ = nullptr;
  }
  [[nodiscard]] int type() const {
    int type = -1;  // a test may have sent one that the enumeration does not name
    if (event_ != nullptr) std::memcpy(&type, &event_->event, sizeof type);
    return type;
  }
  [[nodiscard]] int status() const { return event_->status; }
  [[nodiscard]] rdma_cm_id* id() const { return event_->id; }
  [[nodiscard]] rdma_cm_id* listener() const { return event_->listen_id; }
  [[nodiscard]] const rdma_conn_param& parameters() const { return event_->param.conn; }
  [[nodiscard]] std::string data() const {
    const auto& conn = event_->param.conn;
    return {static_cast<const char*>(conn.private_data), conn.private_data_len};
  }

 private:
  rdma_cm_event* event_ = nullptr;
};

struct ChannelDeleter {
  void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
};
using ChannelPtr = std::unique_ptr<rdma_event_channel, ChannelDeleter>;
inline ChannelPtr make_channel() { return ChannelPtr(rdma_create_event_channel()); }

inline rdma_cm_id* make_id(rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  return id;
}

// A listener, its port chosen by the system unless one is given.
struct Listening {
  ChannelPtr channel = make_channel();
  rdma_cm_id* id = nullptr;
  std::uint16_t port = 0;

  explicit Listening(int backlog = 16, std::uint16_t wanted = 0, const char* here = "127.0.0.1") {
    auto any = v4(here, wanted);
    EXPECT_EQ(rdma_create_id(channel.get(), &id, this, RDMA_PS_TCP), 0);
    EXPECT_EQ(rdma_bind_addr(id, generic(any)), 0);
    EXPECT_EQ(rdma_listen(id, backlog), 0);
    port = ntohs(rdma_get_src_port(id));
  }
  ~Listening() {
    if (id != nullptr) rdma_destroy_id(id);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
};

// An active id that is ready for rdma_connect.
struct Calling {
  ChannelPtr channel = make_channel();
  rdma_cm_id* id = nullptr;

  explicit Calling(std::uint16_t port, const char* address = "127.0.0.1") {
    auto peer = v4(address, port);
    EXPECT_EQ(rdma_create_id(channel.get(), &id, this, RDMA_PS_TCP), 0);
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 2000), 0);
    EXPECT_EQ(NextEvent(channel.get()).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(id, 2000), 0);
    EXPECT_EQ(NextEvent(channel.get()).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  ~Calling() {
    if (id == nullptr) return;
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

  // A QP with CQs of its own, made by rdma_cm.
  void make_qp(std::uint32_t depth = 16) {
    ibv_qp_init_attr attr = rc_attributes(nullptr, depth);
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
  }
  // Asks for a connection; the answer comes as an event.
  void connect() {
    make_qp();
    rdma_conn_param params{};
    params.responder_resources = 1;
    params.initiator_depth = 1;
    EXPECT_EQ(rdma_connect(id, &params), 0);
  }
};

// Two connected ids of this process, each with a QP and a registered buffer.
class Connected {
 public:
  static constexpr std::size_t kBytes = 4096;
  struct Side {
    rdma_cm_id* id = nullptr;
    std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(kBytes);
    ibv_mr* mr = nullptr;

    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const {
      return sge_of(memory.data() + offset, length, mr);
    }
    void post_recv(std::uint64_t wr_id, std::size_t offset, std::size_t length) const {
      ibv_sge sge = this->sge(offset, length);
      ibv_recv_wr wr{wr_id, nullptr, &sge, 1};
      ibv_recv_wr* bad = nullptr;
      EXPECT_EQ(ibv_post_recv(id->qp, &wr, &bad), 0);
    }
    void register_memory() {
      mr = ibv_reg_mr(id->pd, memory.data(), memory.size(),
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                          IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
      ASSERT_NE(mr, nullptr);
    }
  };

  // `adjust` changes the QP's attributes before it is made.
  template <class Adjust>
  explicit Connected(Adjust adjust) : listening_(), calling_(listening_.port) {
    calling_.id->context = this;
    ibv_qp_init_attr_ex attr = extended(calling_.id);
    adjust(attr);
    EXPECT_EQ(rdma_create_qp_ex(calling_.id, &attr), 0) << strerror(errno);
    rdma_conn_param params{};
    params.responder_resources = 4;
    params.initiator_depth = 4;
    EXPECT_EQ(rdma_connect(calling_.id, &params), 0);
    NextEvent request(listening_.channel.get());
    EXPECT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    passive.id = request.id();
    request.ack();
    ibv_qp_init_attr_ex other = extended(passive.id);
    adjust(other);
    EXPECT_EQ(rdma_create_qp_ex(passive.id, &other), 0);
    EXPECT_EQ(rdma_accept(passive.id, &params), 0);
    EXPECT_EQ(NextEvent(calling_.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(NextEvent(listening_.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
    active.id = calling_.id;
    active.register_memory();
    passive.register_memory();
  }
  Connected() : Connected([](ibv_qp_init_attr_ex&) {}) {}
  ~Connected() {
    for (Side* side : {&active, &passive}) {
      if (side->id->qp != nullptr) rdma_destroy_qp(side->id);
      if (side->mr != nullptr) {
        EXPECT_EQ(ibv_dereg_mr(side->mr), 0);
      }
    }
    rdma_destroy_id(passive.id);
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;

  [[nodiscard]] rdma_event_channel* active_channel() const { return calling_.channel.get(); }
  [[nodiscard]] rdma_event_channel* passive_channel() const { return listening_.channel.get(); }

  Side active;
  Side passive;

 private:
  static ibv_qp_init_attr_ex extended(rdma_cm_id* id) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {16, 16, 2, 2, 64};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = id->pd;
    return attr;
  }

  Listening listening_;
  Calling calling_;
};

// Posts one request on the active side and returns the errno.
inline int post_send(const Connected::Side& side, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(side.id->qp, &wr, &bad);
}

// Posts a Send of the first `length` octets of a side's memory.
inline void send_some(const Connected::Side& side, std::size_t length) {
  ibv_sge sge = side.sge(0, length);
  EXPECT_EQ(post_send(side, send_request(sge)), 0);
}

// What a QP's peer does to it so that it gets an asynchronous event: a Write that no region allows.
inline void violate(const Connected::Side& peer, const Connected::Side& victim) {
  ibv_sge sge = peer.sge(0, 8);
  ibv_send_wr wr = send_request(sge);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(victim.memory.data());
  wr.wr.rdma.rkey = victim.mr->rkey + 1;
  EXPECT_EQ(post_send(peer, wr), 0);
}

}  // namespace weft::abi
