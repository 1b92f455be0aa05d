// A device of the RoCE-like personality with one queue pair, for tests that wire it by hand.
#pragma once

#include "roce/hello.h"
#include "verbs/oob/peer_directory.h"
#include "verbs/qp.h"
#include "verbs_testing.h"

namespace weft::verbs::test {

inline Config roce_config() {
  Config config = quiet_config();
  config.personality = Personality::kRoce;
  config.gid = "127.0.0.1";
  return config;
}

struct Wired {
  explicit Wired(QpType type = QpType::kRc, const Config& config = roce_config())
      : host(config), set(host, type) {
    memory.resize(4096);
    region = std::move(*host.pd->register_memory(
        memory.data(), memory.size(),
        Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead));
  }
  [[nodiscard]] QueuePair& qp() const { return *set.qp; }
  [[nodiscard]] WiringToReceive towards(const Wired& peer) const {
    WiringToReceive out;
    out.peer_gid = peer.host.device->peer_directory()->gid();
    out.peer_number = peer.qp().number();
    out.psn = 100;
    return out;
  }
  void to_init() const { ASSERT_TRUE(qp().modify(QpState::kInit)); }
  void to_rtr(const Wired& peer, WiringTurn turn = WiringTurn::kByNumber) const {
    to_init();
    WiringToReceive attributes = towards(peer);
    attributes.turn = turn;
    ASSERT_TRUE(qp().wire(attributes));
  }
  void to_rts(std::uint8_t timeout = 0, std::uint8_t rnr_retry = 7) const {
    WiringToSend out;
    out.rnr_retry = rnr_retry;
    out.psn = 100;
    out.timeout = timeout;
    out.retry_count = 0;
    ASSERT_TRUE(qp().start_sending(out));
  }
  [[nodiscard]] Sge sge(std::uint32_t length) const {
    return {reinterpret_cast<std::uintptr_t>(memory.data()), length, region->lkey()};
  }
  void receive(std::uint64_t id) const {
    const Sge at = sge(64);
    ASSERT_TRUE(qp().post_recv({id, {&at, 1}}));
  }
  void send(std::uint64_t id) const {
    const Sge at = sge(8);
    SendWr wr;
    wr.wr_id = id;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&at, 1};
    ASSERT_TRUE(qp().post_send(wr));
  }
  [[nodiscard]] bool linked() const { return QueuePairImpl::of(qp()).lane().live(); }
  void read(const Wired& peer, std::uint64_t id) const {
    const Sge at = sge(8);
    SendWr wr;
    wr.wr_id = id;
    wr.op = SendOp::kRead;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&at, 1};
    wr.remote_addr = reinterpret_cast<std::uintptr_t>(peer.memory.data());
    wr.rkey = peer.region->rkey();
    ASSERT_TRUE(qp().post_send(wr));
  }
  [[nodiscard]] std::uint64_t fpdus_received() const {
    Counters sum;
    QueuePairImpl::of(qp()).add_counters(sum);
    return sum.rx_fpdus;
  }
  [[nodiscard]] std::uint64_t dropped() const {
    Counters sum;
    QueuePairImpl::of(qp()).add_counters(sum);
    return sum.messages_dropped;
  }
  void write(std::uint64_t id, std::uint64_t to, std::uint32_t rkey,
             SendOp op = SendOp::kWrite) const {
    const Sge at = sge(8);
    SendWr wr;
    wr.wr_id = id;
    wr.op = op;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&at, 1};
    wr.remote_addr = to;
    wr.rkey = rkey;
    ASSERT_TRUE(qp().post_send(wr));
  }
  [[nodiscard]] std::uint64_t address() const {
    return reinterpret_cast<std::uintptr_t>(memory.data());
  }
  [[nodiscard]] std::size_t completions_of(WorkCompletion& wc) const {
    return set.cq->poll({&wc, 1});
  }
  [[nodiscard]] std::size_t completions() const {
    WorkCompletion wc;
    return completions_of(wc);
  }
  WorkCompletion next() const {
    WorkCompletion wc;
    EXPECT_TRUE(eventually([&] { return set.cq->poll({&wc, 1}) == 1; }));
    return wc;
  }

  Host host;
  QpSet set;
  Bytes memory;
  std::shared_ptr<MemoryRegion> region;
};

inline void expect_message(const Wired& from, const Wired& to, std::uint64_t id) {
  to.receive(id);
  from.send(id);
  const WorkCompletion sent = from.next();
  EXPECT_EQ(describe(sent.status), describe(WcStatus::kSuccess));
  const WorkCompletion received = to.next();
  EXPECT_EQ(received.op, WcOp::kRecv);
  EXPECT_EQ(received.wr_id, id);
  EXPECT_EQ(received.byte_len, 8U);
}

}  // namespace weft::verbs::test
