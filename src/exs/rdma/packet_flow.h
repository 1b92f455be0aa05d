// SOCK_SEQPACKET over RDMA: small messages inside a message of the protocol, others fetched by the
// receiver from the sender's memory.
//
// With the mutex of the socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "exs/core/exs_memory.h"
#include "exs/core/exs_socket.h"
#include "exs/rdma/flow.h"
#include "exs/rdma/packet_rules.h"
#include "exs/rdma/rdma_port.h"

namespace weft::exs {

class PacketFlow final : public Flow {
 public:
  PacketFlow(Socket& socket, RdmaPort& port) : s_(socket), port_(port) {}

  int open(Hello& mine) override;
  void start(const Hello& mine, const Hello& theirs) override;
  const char* pump() override;
  void receives_posted() override;
  void posts_done() override;
  void cancel() override;
  void cancel_told() override {}  // the peer answers each
  void stop() override;
  const char* on_message(const Message& message) override;
  const char* on_counters(const Header& header) override;
  const char* on_finish() override;
  void tell(Header& header) override;
  [[nodiscard]] bool has_to_tell() const override;
  [[nodiscard]] bool readable() const override;
  [[nodiscard]] bool writable() const override;

 private:
  struct Incoming {
    std::uint64_t seq = 0;
    bool source = false;  // to be fetched; else in the ring
    bool persistent = false;
    bool matched = false;    // a receive fetches it, and no other may
    bool withdrawn = false;  // no further receive may begin with it
    bool was_received = false;
    int fetching = 0;  // receives that read it now
    std::uint32_t length = 0;
    std::vector<Segment> segments;
  };

  void pump_sends();
  bool send_packet(Operation& op);
  bool send_source(Operation& op);
  const char* on_done(const Header& header);
  void cancel_sends();

  const char* on_data(const Message& message);
  const char* on_source(const Message& message);
  const char* on_withdraw(const Header& header);
  const char* match();
  OperationList::iterator next_free_receive();
  void receive_from_ring(Operation& op, std::deque<Incoming>::iterator it);
  bool start_fetch(Operation& op, Incoming& incoming);
  void finish_receives();
  std::deque<Incoming>::iterator drop_incoming(std::deque<Incoming>::iterator it);
  void prune_incoming();

  Socket& s_;
  RdmaPort& port_;
  std::optional<PacketSender> out_;  // both from start() on
  std::optional<PacketReceiver> in_;
  std::deque<Incoming> incoming_;
  Pages ring_;
  std::uint64_t ring_told_ = 0;     // of ring_consumed(), to the peer
  std::uint64_t report_bytes_ = 0;  // so many more are worth a message
  bool ring_stalled_ = false;       // for the peer's ring or its messages; counted once
};

}  // namespace weft::exs
