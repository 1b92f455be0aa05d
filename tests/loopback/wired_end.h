// A queue pair that the test wires by hand, on a RoCE-like device at 127.0.0.1.
#pragma once

#include <weft/wiring.h>

#include "support/weft_side.h"

namespace weft::test {

inline Config roce_config() {
  Config config = plain_config();
  must(config.set("personality", "roce"), "the personality");
  must(config.set("gid", "127.0.0.1"), "the GID");
  return config;
}

inline Gid loopback_gid() { return gid_of(must(SocketAddress::parse("127.0.0.1:0"), "parse")); }

// The port at which the queue pair of this number is sought.
inline std::uint16_t port_of(std::uint32_t number) {
  constexpr unsigned kIndexBits = 9;
  constexpr unsigned kPortMin = 32768;
  return static_cast<std::uint16_t>(kPortMin + (number >> kIndexBits));
}

// In INIT at first.
struct WiredEnd {
  explicit WiredEnd(Host& host, QpType type = QpType::kRc) {
    channel = must(host.device->create_channel(), "create a channel");
    CqOptions with;
    with.channel = channel;
    cq = must(host.device->create_cq(with), "create a CQ");
    QpOptions options;
    options.type = type;
    options.send_cq = options.recv_cq = cq;
    qp = must(host.pd->create_qp(options), "create a QP");
    must(qp->modify(QpState::kInit), "to INIT");
  }
  [[nodiscard]] Status to_rtr(const WiredEnd& peer) const {
    WiringToReceive how;
    how.peer_gid = loopback_gid();
    how.peer_number = peer.qp->number();
    return qp->wire(how);
  }
  [[nodiscard]] Status to_rts() const { return qp->start_sending({}); }

  std::shared_ptr<CompletionChannel> channel;
  std::shared_ptr<CompletionQueue> cq;
  std::shared_ptr<QueuePair> qp;
};

// A queue pair of datagrams with a channel, ready.
struct DatagramEnd {
  explicit DatagramEnd(Host& host) {
    channel = must(host.device->create_channel(), "create a channel");
    CqOptions with;
    with.channel = channel;
    cq = must(host.device->create_cq(with), "create a CQ");
    sent = must(host.device->create_cq({}), "create a CQ");
    QpOptions options;
    options.type = QpType::kUd;
    options.send_cq = sent;
    options.recv_cq = cq;
    qp = must(host.pd->create_qp(options), "create a QP");
    for (const QpState to : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      must(qp->modify(to), "modify");
    }
  }
  std::shared_ptr<CompletionChannel> channel;
  std::shared_ptr<CompletionQueue> cq, sent;
  std::shared_ptr<QueuePair> qp;
};

inline void wire(const WiredEnd& a, const WiredEnd& b) {
  must(a.to_rtr(b), "to RTR");
  if (&a != &b) must(b.to_rtr(a), "to RTR");
  must(a.to_rts(), "to RTS");
  if (&a != &b) must(b.to_rts(), "to RTS");
}

}  // namespace weft::test
