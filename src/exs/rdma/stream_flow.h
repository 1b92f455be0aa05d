// SOCK_STREAM over RDMA. StreamSender and StreamReceiver decide, this class moves the bytes.
//
// With the mutex of the socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "exs/core/exs_memory.h"
#include "exs/core/exs_socket.h"
#include "exs/rdma/advertised_memory.h"
#include "exs/rdma/flow.h"
#include "exs/rdma/rdma_port.h"
#include "exs/rdma/stream_rules.h"

namespace weft::exs {

class StreamFlow final : public Flow {
 public:
  StreamFlow(Socket& socket, RdmaPort& port) : s_(socket), port_(port) {}

  int open(Hello& mine) override;
  void start(const Hello& mine, const Hello& theirs) override;
  void release() override { ring_mr_.reset(); }
  const char* pump() override;
  void receives_posted() override;
  void posts_done() override;
  void cancel() override;
  void cancel_told() override { cancel(); }
  const char* on_message(const Message& message) override;
  const char* on_counters(const Header& header) override;
  const char* on_finish() override;
  void tell(Header& header) override;
  [[nodiscard]] bool has_to_tell() const override;
  [[nodiscard]] bool readable() const override;
  [[nodiscard]] bool writable() const override;

 private:
  const char* pump_sends();
  bool send_step(Operation& op, const StreamSender::Step& step);
  bool send_direct(Operation& op, const StreamSender::Step& step);
  bool send_ring(Operation& op, const StreamSender::Step& step);
  const char* on_advert(const Message& message);
  const char* on_close_chain(const Header& header);

  const char* on_data(const Message& message);
  const char* on_ring(const Header& header);
  const char* on_direct(const Header& header, std::span<const std::uint8_t> payload);
  const char* into_ring(std::uint64_t seq, std::uint64_t length,
                        std::span<const std::uint8_t> payload);
  const char* on_chain_closed(const Header& header);
  void void_adverts();
  void deliver_ring();
  void advertise();
  bool advertise_one(Operation& op);
  void finish_receive(OperationList::iterator it, int error);

  Socket& s_;
  RdmaPort& port_;
  std::optional<StreamSender> out_;  // both from start() on
  std::optional<StreamReceiver> in_;
  AdvertisedMemory their_adverts_;
  Pages ring_;
  Mr ring_mr_;
  std::uint64_t ring_told_ = 0;     // of ring_consumed(), to the peer
  std::uint64_t report_bytes_ = 0;  // so many more are worth a message
  bool ring_stalled_ = false;       // for the peer's ring; counted once
};

}  // namespace weft::exs
