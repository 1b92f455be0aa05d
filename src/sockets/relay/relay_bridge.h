// One connection in the relay: a channel to a program of this machine on one side, RDMA or a plain
// TCP connection on the other.
//
// Threads: the relay's one thread. It also runs the RDMA side, see begin_sleep() of
// CompletionChannel. Weft's engine only writes to `wake`.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "rsockets/rs_connection.h"
#include "rsockets/rs_incoming.h"
#include "sockets/relay/relay_protocol.h"
#include "sockets/socket_channel.h"

namespace weft::sockets {

class Bridge {
 public:
  enum class State : std::uint8_t {
    kDeposited,   // the other end waits to be claimed
    kConnecting,  // RDMA, as initiator
    kServing,     // RDMA, as responder
    kRdma,
    kDialing,  // a plain connection, in the place of the one that was offered RDMA
    kPlain,
    kClosing,  // RDMA: all is said; the peer closes
    kDone,
  };

  // Takes the descriptors of the request: TCP socket, memory, end of the pair.
  Bridge(RelayRequest request, int tcp, int memory, int pair, int epoll, int wake);
  ~Bridge();
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  void begin();
  // Does all that can be done now. Called after each event of its descriptors and each wake.
  void advance();
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  [[nodiscard]] const Secret& token() const { return request_.token; }
  // Gives memory and pair away. REQUIRES: kDeposited.
  void claimed(int (&fds)[2]);
  // Once: the peer was asked for RDMA, and took a plain connection instead.
  [[nodiscard]] bool take_declined() { return std::exchange(declined_, false); }
  [[nodiscard]] const RelayRequest& request() const { return request_; }
  // When advance() has to be called without an event: now and then, or at once.
  [[nodiscard]] bool needs_tick() const;
  [[nodiscard]] bool busy() const { return busy_; }

 private:
  bool attach();
  void dial();
  void watch(int fd, std::uint32_t events);
  void let_go(int& fd);
  void finish_dial();
  void end_in_error();
  void pump_plain();
  // The steps of pump_plain(). True: something moved.
  bool program_to_tcp();
  void tcp_to_pending();
  bool pending_to_program();
  void pump_rdma();
  void rdma_out();
  void rdma_in();
  void enter_rdma();
  void finish();

  RelayRequest request_;
  State state_ = State::kDone;
  int tcp_;
  int memory_;
  int pair_;
  const int epoll_;
  const int wake_;
  Channel* channel_ = nullptr;
  std::shared_ptr<rsockets::RsConnection> rdma_;
  std::unique_ptr<rsockets::RsIncoming> incoming_;
  std::chrono::steady_clock::time_point limit_{};
  std::vector<std::uint8_t> pending_;  // from the plain connection, not yet in the channel
  bool out_ended_ = false;             // the program sends no more
  bool out_told_ = false;
  bool in_ended_ = false;  // the far side sends no more
  bool declined_ = false;
  bool busy_ = false;
  bool looked_ = false;  // since advance() began: the channel is empty, and its program there
};

// The relay's device, opened on first use; null: it can't be.
[[nodiscard]] std::shared_ptr<Device> relay_device();

}  // namespace weft::sockets
