// A socket over RDMA: docs/exs-protocol.md, over a reliable connected queue pair.
//
// All calls with the mutex of its Socket. RdmaPort posts, a Flow moves the data; this class sets
// the connection up (rdma_setup.cc), takes what comes (rdma_receive.cc), does one-sided work
// (rdma_one_sided.cc) and ends it all (rdma_end.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "exs/core/exs_engine.h"
#include "exs/core/exs_messages.h"
#include "exs/core/exs_socket.h"
#include "exs/rdma/flow.h"
#include "exs/rdma/named_memory.h"
#include "exs/rdma/rdma_port.h"
#include "exs/rdma/sending_end.h"
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
  void fail(int error) override { broke(error, nullptr); }
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
  [[nodiscard]] const std::shared_ptr<Device>& device() const { return port_.device(); }
  [[nodiscard]] NamedMemory& names() { return names_; }

 private:
  // ---- set-up (rdma_setup.cc)
  static std::shared_ptr<Socket> requested(const std::shared_ptr<Socket>& listener,
                                           const Settings& settings, rdma_cm_id* id);
  int make_id();
  int make_qp();
  Hello my_hello() const;
  bool accept_hello(const Hello& hello);
  void resolved();
  void established();
  void refused(const CmEvent& event);
  int fall_back();
  int listen_for_tcp(int backlog);
  rdma_conn_param parameters(const std::uint8_t* data, std::size_t length) const;

  void flush();  // sends all that can be sent now

  // ---- one-sided work (rdma_one_sided.cc)
  void pump_one_sided();
  // Posts it, or gives it an error. False: the connection is broken.
  bool post_one_sided(Operation& op);
  void finish_one_sided();

  // ---- messages of the peer (rdma_receive.cc)
  void on_message(std::uint32_t slot, std::uint32_t length);
  const char* take_counters(const Header& header);
  const char* dispatch(const Message& message);

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
  RdmaPort port_;
  std::unique_ptr<Flow> flow_;
  NamedMemory names_;

  Address target_;
  Address local_;  // of a connection
  Address peer_;
  std::weak_ptr<Socket> parent_;
  std::unique_ptr<TcpSocket> tcp_listener_;  // EXS_F_SETTCPPORT
  bool passive_ = false;
  bool announce_ = false;

  SendingEnd end_;
  Instant disconnect_by_{};
};

}  // namespace weft::exs
