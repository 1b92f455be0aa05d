// A socket over RDMA: docs/exs-protocol.md, over a reliable connected queue pair.
//
// All calls with the mutex of its Socket. Source files by event: rdma_setup.cc (connections),
// rdma_send.cc (posting, credits), rdma_receive.cc (messages of the peer), rdma_stream.cc and
// rdma_packet.cc (data), rdma_end.cc (finish, close, failure).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "exs/core/exs_engine.h"
#include "exs/core/exs_messages.h"
#include "exs/core/exs_socket.h"
#include "exs/rdma/advertised_memory.h"
#include "exs/rdma/cm_connection.h"
#include "exs/rdma/message_slots.h"
#include "exs/rdma/named_memory.h"
#include "exs/rdma/packet_rules.h"
#include "exs/rdma/send_queue.h"
#include "exs/rdma/sending_end.h"
#include "exs/rdma/slot_credits.h"
#include "exs/rdma/stream_rules.h"
#include "exs/tcp/tcp_socket.h"

namespace weft::exs {

class RdmaSocket final : public Provider {
 public:
  explicit RdmaSocket(Socket& socket);
  ~RdmaSocket() override;

  int bind(const Address& address) override;
  int listen(int backlog) override;
  int connect(const Address& address) override;
  int local(Address& out) const override;
  int peer(Address& out) const override;
  void sends_posted() override;
  void receives_posted() override;
  void shut_down() override;
  void close() override;
  void cancel() override;
  [[nodiscard]] bool readable() const override;
  [[nodiscard]] bool writable() const override;
  [[nodiscard]] bool is_rdma() const override { return true; }
  void on_completions(std::span<const ibv_wc> completions) override;
  void on_cm(const CmEvent& event) override;
  void on_time() override;
  void on_ready(std::uint32_t epoll_events) override;
  void accepts_posted() override;
  std::shared_ptr<Socket> take_parent() override;

  // A peer asks for a connection; `listener` may be null. Without any lock.
  static void on_request(const std::shared_ptr<Socket>& listener, const CmEvent& event);

  // One-sided work has been posted.
  void one_sided_posted();
  [[nodiscard]] const std::shared_ptr<Device>& device() const { return cm_.device(); }
  [[nodiscard]] NamedMemory& names() { return names_; }

 private:
  // ---- set-up (rdma_setup.cc)
  int make_id();
  int make_qp();
  int make_ring();
  Hello my_hello() const;
  bool accept_hello(const Hello& hello);
  void resolved();
  void established();
  void refused(const CmEvent& event);
  int fall_back();
  int listen_for_tcp(int backlog);
  rdma_conn_param parameters(const std::uint8_t* data, std::size_t length) const;

  // ---- posting (rdma_send.cc)
  struct RemotePiece {
    std::uint64_t addr = 0;
    std::uint32_t rkey = 0;
    std::uint64_t length = 0;
  };
  // Whether there is room for `requests` work requests and, if a message is wanted, for one.
  [[nodiscard]] bool can_post(std::size_t requests) const;
  [[nodiscard]] bool can_send(std::size_t requests);
  // Posts one message. `payload` of the operation from `from` on is copied into it.
  bool send_message(Header header, std::span<const Segment> segments, const Operation* payload,
                    std::size_t from, bool signaled);
  // Writes bytes of `op` to remote memory, unsignaled: a message follows.
  bool post_writes(Operation& op, std::size_t from, std::span<const RemotePiece> to);
  bool post_requests(ibv_send_wr* first, std::size_t count, int slot, bool signaled);
  bool local_key(Operation& op, const Piece& piece, std::uint32_t& out);
  void flush();  // sends all that can be sent now
  void flush_control();
  void flush_credits();
  void queue_control(Type type, std::uint8_t flags, std::uint64_t seq, std::uint32_t aux);
  void pump_one_sided();
  bool post_one_sided(Operation& op);
  void finish_one_sided();
  bool load_file(Operation& op);

  // ---- messages of the peer (rdma_receive.cc)
  void on_message(std::uint32_t slot, std::uint32_t length);
  const char* take_counters(const Header& header);
  const char* dispatch(const Message& message);
  const char* on_close_chain(const Header& header);
  const char* on_chain_closed(const Header& header);
  void slot_read(std::uint32_t slot);

  // ---- stream (rdma_stream.cc)
  void pump_stream();
  bool send_step(Operation& op, const StreamSender::Step& step);
  bool send_direct(Operation& op, const StreamSender::Step& step);
  bool send_ring(Operation& op, const StreamSender::Step& step);
  void finish_stream_sends();
  const char* on_advert(const Message& message);
  const char* on_stream_data(const Message& message);
  const char* on_ring(const Header& header);
  const char* on_direct(const Header& header, std::span<const std::uint8_t> payload);
  const char* into_ring(std::uint64_t seq, std::uint64_t length,
                        std::span<const std::uint8_t> payload);
  void void_adverts();
  void deliver_ring();
  void advertise();
  bool advertise_one(Operation& op);
  void cancel_stream();
  void finish_receive(OperationList::iterator it, int error);

  // ---- packets (rdma_packet.cc)
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
  void pump_packets();
  bool send_packet(Operation& op);
  bool send_source(Operation& op);
  const char* on_packet_data(const Message& message);
  const char* on_source(const Message& message);
  const char* on_done(const Header& header);
  const char* on_withdraw(const Header& header);
  void match_packets();
  OperationList::iterator next_free_receive();
  void receive_from_ring(Operation& op, std::deque<Incoming>::iterator it);
  bool start_fetch(Operation& op, Incoming& incoming);
  bool sink_key(Operation& op, const Piece& piece, std::size_t at, std::size_t length,
                std::uint32_t& out);
  void finish_fetches();
  void finish_packet_receives();
  std::deque<Incoming>::iterator drop_incoming(std::deque<Incoming>::iterator it);
  void prune_incoming();
  void cancel_packets();
  void cancel_packet_sends();
  void withdraw_persistent();

  // ---- the end (rdma_end.cc)
  void end_cancelled(Instant now);
  [[nodiscard]] bool revoke_stuck(OperationList& list, Instant now);
  void advance_end();
  void disconnect();
  void broke(int error, const char* why);
  std::shared_ptr<Socket> leave_parent();
  void release();
  void ended();

  Socket& s_;
  Engine& engine_;
  CmConnection cm_;
  Address target_;
  Address local_;  // of a connection
  Address peer_;
  std::weak_ptr<Socket> parent_;
  std::unique_ptr<TcpSocket> tcp_listener_;  // EXS_F_SETTCPPORT
  bool passive_ = false;
  bool announce_ = false;
  bool up_ = false;     // connected
  bool heard_ = false;  // passive: the peer has sent something, so that we may

  Hello mine_;
  Hello theirs_;
  MessageSlots slots_;
  std::size_t inline_bytes_ = 0;
  Pages ring_;
  Mr ring_mr_;

  SlotCredits credits_;
  bool stalled_ = false;  // for a credit; counted once
  bool ring_stalled_ = false;

  SendQueue queue_;

  struct Control {
    Type type;
    std::uint8_t flags;
    std::uint64_t seq;
    std::uint32_t aux;
  };
  std::deque<Control> control_;

  std::optional<StreamSender> out_;
  std::optional<StreamReceiver> in_;
  AdvertisedMemory their_adverts_;
  std::uint64_t ring_told_ = 0;

  // Packets.
  std::optional<PacketSender> packets_out_;
  std::optional<PacketReceiver> packets_in_;
  std::deque<Incoming> incoming_;

  // The end.
  SendingEnd end_;
  bool peer_finished_ = false;
  Instant disconnect_by_{};
  std::uint64_t last_serial_ = 0;  // of the last message, to be away before we disconnect
  bool gone_ = false;

  NamedMemory names_;
};

}  // namespace weft::exs
