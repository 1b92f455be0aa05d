// A peer that can say anything: a program of verbs that speaks EXS by src/exs/core/exs_messages.h.
#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "exs/core/exs_messages.h"
#include "exs_support.h"

namespace weft::exs_test {

using exs::Header;
using exs::Hello;
using exs::Segment;
using exs::Type;

inline constexpr std::size_t kSlot = 8192;
inline constexpr std::size_t kSlots = 64;

inline Hello hello_of(const Way& way) {
  Hello hello;
  hello.kind = way.type == SOCK_STREAM ? exs::Kind::kStream : exs::Kind::kPacket;
  hello.slots = kSlots;
  hello.messages = kSlots;
  hello.immediate_bytes = 4096;
  hello.ring_bytes = 1U << 20U;
  return hello;
}

// An end of a connection that can say anything, with receives posted for what the socket says.
class LyingEnd {
 public:
  LyingEnd() : memory_(2 * kSlot * kSlots) {}
  ~LyingEnd() {
    if (connected_) rdma_disconnect(id_);
    if (mr_ != nullptr) rdma_dereg_mr(mr_);
    if (id_ != nullptr) rdma_destroy_ep(id_);
  }
  LyingEnd(const LyingEnd&) = delete;
  LyingEnd& operator=(const LyingEnd&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }

  // False: the connection is over.
  bool say(std::span<const std::uint8_t> bytes) {
    std::uint8_t* at = memory_.data() + (kSlots + next_++ % kSlots) * kSlot;
    std::copy(bytes.begin(), bytes.end(), at);
    if (rdma_post_send(id_, nullptr, at, bytes.size(), mr_, 0) != 0) return false;
    ibv_wc wc{};
    return rdma_get_send_comp(id_, &wc) == 1 && wc.status == IBV_WC_SUCCESS;
  }

  // Waits for the next message of the socket. What is returned lives as long as this.
  exs::Message hear() {
    ibv_wc wc{};
    EXPECT_EQ(rdma_get_recv_comp(id_, &wc), 1);
    exs::Message out;
    const std::span<const std::uint8_t> slots(memory_);
    EXPECT_EQ(exs::decode(slots.subspan(heard_++ * kSlot, wc.byte_len), out), nullptr);
    return out;
  }
  // The next one of this type; those before it are of no interest.
  exs::Message hear(Type type) {
    exs::Message out = hear();
    while (out.header.type != type) out = hear();
    return out;
  }
  // The status with which a Write into the memory of the socket ends, or a Read from it.
  ibv_wc_status reach(const Segment& there, bool write) {
    const std::size_t bytes = std::min<std::size_t>(there.length, kSlot);
    std::uint8_t* at = memory_.data() + kSlots * kSlot;
    EXPECT_EQ(write ? rdma_post_write(id_, nullptr, at, bytes, mr_, 0, there.addr, there.rkey)
                    : rdma_post_read(id_, nullptr, at, bytes, mr_, 0, there.addr, there.rkey),
              0);
    ibv_wc wc{};
    EXPECT_EQ(rdma_get_send_comp(id_, &wc), 1);
    return wc.status;
  }

  bool say(const Header& header, std::span<const Segment> segments = {},
           std::span<const std::uint8_t> rest = {}) {
    std::vector<std::uint8_t> bytes(Header::kSize);
    encode(header, std::span<std::uint8_t, Header::kSize>(bytes.data(), Header::kSize));
    for (const Segment& one : segments) {
      std::array<std::uint8_t, Segment::kSize> segment;
      encode(one, segment);
      bytes.insert(bytes.end(), segment.begin(), segment.end());
    }
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    return say(bytes);
  }

 protected:
  static ibv_qp_init_attr queue_pair() {
    ibv_qp_init_attr attr{};
    attr.cap = {kSlots, kSlots, 1, 1, 0};
    attr.sq_sig_all = 1;
    return attr;
  }
  void post_receives() {
    mr_ = rdma_reg_msgs(id_, memory_.data(), memory_.size());
    for (std::size_t i = 0; i < kSlots; ++i) {
      EXPECT_EQ(rdma_post_recv(id_, nullptr, memory_.data() + i * kSlot, kSlot, mr_), 0);
    }
  }

  rdma_cm_id* id_ = nullptr;
  bool connected_ = false;

 private:
  std::vector<std::uint8_t> memory_;
  ibv_mr* mr_ = nullptr;
  std::size_t next_ = 0;
  std::size_t heard_ = 0;
};

// The end that connects. `reads`: how many the socket may have under way to it.
class Liar : public LyingEnd {
 public:
  Liar(std::uint16_t port, std::span<const std::uint8_t> private_data, std::uint8_t reads = 1) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* to = nullptr;
    EXPECT_EQ(rdma_getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &to), 0);
    ibv_qp_init_attr attr = queue_pair();
    EXPECT_EQ(rdma_create_ep(&id_, to, nullptr, &attr), 0) << std::strerror(errno);
    rdma_freeaddrinfo(to);
    post_receives();
    rdma_conn_param params{};
    params.private_data = private_data.data();
    params.private_data_len = static_cast<std::uint8_t>(private_data.size());
    params.responder_resources = reads;
    params.initiator_depth = 1;
    connected_ = rdma_connect(id_, &params) == 0;
    if (!connected_ && id_->event != nullptr && id_->event->param.conn.private_data != nullptr) {
      const auto* data = static_cast<const std::uint8_t*>(id_->event->param.conn.private_data);
      answer_.assign(data, data + id_->event->param.conn.private_data_len);
    }
  }
  [[nodiscard]] const std::vector<std::uint8_t>& answer() const { return answer_; }

 private:
  std::vector<std::uint8_t> answer_;
};

// The end that a socket connects to: one after the other of these calls.
class LyingListener : public LyingEnd {
 public:
  LyingListener() {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = RAI_PASSIVE;
    rdma_addrinfo* at = nullptr;
    EXPECT_EQ(rdma_getaddrinfo("127.0.0.1", "0", &hints, &at), 0);
    ibv_qp_init_attr attr = queue_pair();
    EXPECT_EQ(rdma_create_ep(&listener_, at, nullptr, &attr), 0) << std::strerror(errno);
    rdma_freeaddrinfo(at);
    EXPECT_EQ(rdma_listen(listener_, 1), 0) << std::strerror(errno);
  }
  ~LyingListener() { rdma_destroy_ep(listener_); }
  [[nodiscard]] std::uint16_t port() const { return ntohs(rdma_get_src_port(listener_)); }
  void hear_request() {
    EXPECT_EQ(rdma_get_request(listener_, &id_), 0) << std::strerror(errno);
    post_receives();
  }
  bool accept(std::span<const std::uint8_t> private_data) {
    rdma_conn_param params{};
    params.private_data = private_data.data();
    params.private_data_len = static_cast<std::uint8_t>(private_data.size());
    params.responder_resources = params.initiator_depth = 1;
    connected_ = rdma_accept(id_, &params) == 0;
    return connected_;
  }

 private:
  rdma_cm_id* listener_ = nullptr;
};

inline std::vector<std::uint8_t> bytes_of(const Hello& hello) {
  std::vector<std::uint8_t> out(Hello::kSize);
  encode(hello, std::span<std::uint8_t, Hello::kSize>(out.data(), Hello::kSize));
  return out;
}

inline Header header_of(Type type, std::uint32_t length = 0, std::uint64_t seq = 0) {
  Header out;
  out.type = type;
  out.length = length;
  out.seq = seq;
  return out;
}

}  // namespace weft::exs_test
