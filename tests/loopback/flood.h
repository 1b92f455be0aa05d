// Random traffic on one connection with an account of every request: each must complete exactly
// once.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>

#include "support/weft_side.h"

namespace weft::test {

// What two flooding sides tell each other in their private data: where the other may write and
// read.
struct FloodTarget {
  std::uint64_t to = 0;
  std::uint32_t rkey = 0;

  [[nodiscard]] std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> out(sizeof *this);
    std::memcpy(out.data(), this, sizeof *this);
    return out;
  }
  static FloodTarget from(const std::vector<std::uint8_t>& bytes) {
    FloodTarget target;
    if (bytes.size() < sizeof target) throw Failure("the peer did not say where its memory is");
    std::memcpy(&target, bytes.data(), sizeof target);
    return target;
  }
};

// Set of request ids that are posted and not completed.
class Account {
 public:
  void posted(std::uint64_t id) { open_.insert(id); }
  // False if it was not open: completed twice, or never posted.
  bool completed(std::uint64_t id) { return open_.erase(id) == 1; }
  [[nodiscard]] std::size_t open() const { return open_.size(); }

 private:
  std::set<std::uint64_t> open_;
};

class Flood {
 public:
  static constexpr std::size_t kBytes = 1U << 20U;

  Flood(Host& host, unsigned seed)
      : endpoint(host, options()), memory_(host, kBytes), scratch_(host, kBytes), random_(seed) {}

  Endpoint endpoint;
  FloodTarget peer;

  [[nodiscard]] FloodTarget here() const { return {.to = memory_.to(), .rkey = memory_.rkey()}; }

  // Takes the connection that a listener of endpoint.events brings.
  void accept() {
    using Type = ConnectionEvent::Type;
    const ConnectionEvent event = take_event(*endpoint.events, Type::kConnectRequest);
    peer = FloodTarget::from(event.private_data);
    ConnectionParams params;
    params.private_data = here().bytes();
    endpoint.connection = event.connection;
    must(event.connection->accept(endpoint.qp, params), "accept");
    take_event(*endpoint.events, Type::kEstablished);
  }

  void post_receives() {
    for (int i = 0; i < 200; ++i) post_receive();
  }

  // Posts what there is room for and takes what has come. False if an account does not add up.
  bool step() {
    while (sends_.open() < 60) {
      if (!post_one()) break;
    }
    return reap();
  }

  // Waits until all that was posted is done.
  bool rest() {
    return eventually([&] { return reap() && sends_.open() == 0; });
  }
  // Large Writes, more of them than the buffers between two processes hold.
  void pour() {
    const Sge sge = scratch_.sge(0, kBytes);
    while (sends_.open() < 60) {
      SendWr wr = wr_write(next_id_, peer.rkey, peer.to);
      wr.sges = std::span(&sge, 1);
      if (!endpoint.qp->post_send(wr)) throw Failure("the send queue is full");
      sends_.posted(next_id_++);
    }
  }

  // Reads what the peer never offered: it answers with a Terminate.
  void break_the_rules() {
    SendWr wr = wr_read(next_id_, peer.rkey ^ 0x5a5a5a00U, 0);
    const Sge sge = scratch_.sge(0, 8);
    wr.sges = std::span(&sge, 1);
    if (!eventually([&] { return reap() && endpoint.qp->post_send(wr).has_value(); })) {
      throw Failure("the send queue stays full");
    }
    sends_.posted(next_id_++);
  }

  // Takes all that is still due after the end. Every open request must come back.
  bool settle() {
    return eventually([&] { return !reap() || (sends_.open() == 0 && receives_.open() == 0); }) &&
           sound_ && sends_.open() == 0 && receives_.open() == 0 &&
           quiet(*endpoint.send_cq, milliseconds(5)) && quiet(*endpoint.recv_cq, milliseconds(1));
  }

  [[nodiscard]] std::uint64_t succeeded() const { return succeeded_; }
  // Nothing was written beside the memory that is registered.
  [[nodiscard]] bool guards_intact() const {
    return memory_.guards_intact() && scratch_.guards_intact();
  }
  [[nodiscard]] std::string state() const {
    return std::to_string(sends_.open()) + " sends and " + std::to_string(receives_.open()) +
           " receives open, " + (sound_ ? "no" : "some") + " request completed twice";
  }

 private:
  static EndpointOptions options() {
    EndpointOptions o;
    o.max_send_wr = 64;
    o.max_recv_wr = 256;
    o.cq_depth = 1024;
    return o;
  }

  void post_receive() {
    RecvWr wr;
    wr.wr_id = next_id_;
    const Sge sge = scratch_.sge(0, kBytes);
    wr.sges = std::span(&sge, 1);
    if (endpoint.qp->post_recv(wr)) receives_.posted(next_id_++);
  }

  // Sends are rare: the peer's receives are its own business, and running out of them would end
  // the connection before the test does.
  bool post_one() {
    const std::uint64_t kind = random_() % 16;
    const std::size_t size = random_() % (random_() % 8 == 0 ? kBytes / 2 : 3000);
    SendWr wr;
    if (kind < 7) {
      wr = wr_write(next_id_, peer.rkey, peer.to + random_() % 1000);
    } else if (kind < 13) {
      wr = wr_read(next_id_, peer.rkey, peer.to + random_() % 1000);
    } else if (kind < 15) {
      wr = wr_fetch_add(next_id_, peer.rkey, peer.to, 1);
    } else {
      wr = credits_ > 0 ? wr_send(next_id_) : wr_write(next_id_, peer.rkey, peer.to);
      if (credits_ > 0) --credits_;
    }
    const bool atomic = wr.op == SendOp::kFetchAdd;
    const Sge sge = scratch_.sge(0, atomic ? 8 : size);
    wr.sges = std::span(&sge, 1);
    if (!endpoint.qp->post_send(wr)) return false;
    sends_.posted(next_id_++);
    return true;
  }

  bool reap() {
    std::array<WorkCompletion, 32> done;
    for (std::size_t n = endpoint.send_cq->poll(done); n > 0; n = endpoint.send_cq->poll(done)) {
      for (std::size_t i = 0; i < n; ++i) {
        sound_ = sends_.completed(done[i].wr_id) && sound_;
        if (done[i].status == WcStatus::kSuccess) ++succeeded_;
      }
    }
    for (std::size_t n = endpoint.recv_cq->poll(done); n > 0; n = endpoint.recv_cq->poll(done)) {
      for (std::size_t i = 0; i < n; ++i) sound_ = receives_.completed(done[i].wr_id) && sound_;
    }
    return sound_;
  }

  Memory memory_, scratch_;
  std::minstd_rand random_;
  Account sends_, receives_;
  std::uint64_t next_id_ = 1;
  std::uint64_t succeeded_ = 0;
  int credits_ = 150;
  bool sound_ = true;
};

}  // namespace weft::test
