// The lwIP transport: an rddp::Channel over a TCP connection of lwIP's raw API.
//
// Octets are parsed where lwIP received them. Each FPDU is put into a segment of its own when
// aligned sending is on: the next one is handed over only when lwIP has sent what it had, so that
// the receiver can place each segment by itself.
//
// Threads: those that may call lwIP's raw API. With NO_SYS that is the one thread of the program;
// with lwIP's own thread, the thread that holds LOCK_TCPIP_CORE().
#pragma once

#include <weft/result.h>

#include <chrono>
#include <cstdint>

#include <lwip/err.h>
#include <lwip/ip_addr.h>
#include "base/time.h"
#include "rddp/rddp_channel.h"

struct pbuf;
struct tcp_hdr;
struct tcp_pcb;

namespace weft::lwip {

struct ConnectionOptions {
  bool aligned = true;  // one FPDU per segment
  // A peer that has said nothing for so long is asked whether the connection still exists: its
  // reset may have been lost. One that answers nothing is given up some minutes later (lwIP's
  // TCP_KEEPINTVL_DEFAULT and TCP_KEEPCNT_DEFAULT). 0: never.
  std::chrono::milliseconds keepalive{0};
};

// One TCP connection. Lives as long as its owner wants; the TCP connection may end before.
class Connection {
 public:
  explicit Connection(rddp::Channel& channel, const ConnectionOptions& options = {});
  ~Connection();  // resets the TCP connection if it is still there
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Connects; then MPA start-up begins as `offer` says. `local` null: lwIP chooses.
  //   kNoMemory, kUnreachable, kAddressInUse; otherwise as Channel::initiate()
  [[nodiscard]] Status connect(const ip_addr_t* local, const ip_addr_t& peer, std::uint16_t port,
                               const proto::StartupOffer& offer);
  // Takes over a connection that a Listener accepted: responder.
  void adopt(tcp_pcb* pcb);

  // Sends what there is to send and closes what is to be closed. Call it after posting.
  void progress();
  // When time() wants to be called at the latest. A main loop calls it at each turn: then the next
  // FPDU leaves as soon as lwIP has sent what it had, not with the next acknowledgment.
  [[nodiscard]] Instant deadline() const noexcept { return channel_.deadline(); }
  void time(Instant now);

  // The TCP connection has ended, in whatever way.
  [[nodiscard]] bool closed() const noexcept { return pcb_ == nullptr; }
  // Why connect() did not get through, once closed(): kRefused, kTimedOut, kSystem. Error{}: it
  // did.
  [[nodiscard]] Error connect_error() const noexcept { return connect_error_; }
  [[nodiscard]] rddp::Channel& channel() noexcept { return channel_; }

  // Segments seen ahead of their turn, and FPDUs placed from them.
  struct AheadCounters {
    std::uint32_t segments = 0;         // that arrived ahead
    std::uint32_t segments_placed = 0;  // of which something was placed
    std::uint32_t fpdus_placed = 0;
  };
  [[nodiscard]] const AheadCounters& ahead() const noexcept { return ahead_; }

  // lwIP's callbacks and its hook; for lwip_connection.cc.
  err_t on_connected();
  err_t on_received(pbuf* p);
  err_t on_acknowledged(std::uint16_t n);
  err_t on_poll();
  void on_error(err_t error);
  void on_segment(tcp_hdr* hdr, std::uint16_t optlen, pbuf* p);

 private:
  void attach(tcp_pcb* pcb);
  void detach();
  [[nodiscard]] bool send_some();
  [[nodiscard]] bool may_hand_over() const noexcept;
  void receive(pbuf* p);
  void send();
  err_t settle();

  rddp::Channel& channel_;
  const ConnectionOptions options_;
  tcp_pcb* pcb_ = nullptr;
  bool connecting_ = false;
  Error connect_error_{};
  bool held_back_ = false;            // an FPDU waits until lwIP has sent what it had
  bool ending_ = false;               // it has ended, but for the TCP connection
  bool at_border_ = true;             // what was handed over last ended an FPDU
  std::uint32_t unacknowledged_ = 0;  // octets that lwIP may still read
  AheadCounters ahead_;
};

// Accepts TCP connections on a port.
class Listener {
 public:
  // Asked for the connection that takes the next one; null refuses it.
  using Acceptor = Connection* (*)(void* context);

  Listener() = default;
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  //   kNoMemory, kAddressInUse
  [[nodiscard]] Status listen(const ip_addr_t* local, std::uint16_t port, Acceptor acceptor,
                              void* context);

  [[nodiscard]] std::uint16_t port() const noexcept;  // that it listens on

  err_t on_accept(tcp_pcb* pcb, err_t error);  // lwIP's callback

 private:
  tcp_pcb* pcb_ = nullptr;
  Acceptor acceptor_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace weft::lwip
