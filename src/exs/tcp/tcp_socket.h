// A socket over kernel TCP. SOCK_STREAM is the plain stream, so that the peer can be anybody;
// SOCK_SEQPACKET puts a header before each message (docs/exs-protocol.md).
//
// All calls with the mutex of its Socket.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "exs/core/exs_engine.h"
#include "exs/core/exs_socket.h"
#include "os/fd.h"

namespace weft::exs {

class TcpSocket final : public Provider {
 public:
  explicit TcpSocket(Socket& socket);
  ~TcpSocket() override;

  // The socket is connected or listens already.
  int adopt();

  int bind(const Address& address) override;
  int listen(int backlog) override;
  int connect(const Address& address) override;
  int local(Address& out) const override;
  int peer(Address& out) const override;
  void sends_posted() override;
  void receives_posted() override;
  void accepts_posted() override;
  void shut_down() override;
  void close() override;
  void cancel() override;
  void fail(int error) override { failed(error); }
  [[nodiscard]] bool readable() const override;
  [[nodiscard]] bool writable() const override;
  [[nodiscard]] bool is_rdma() const override { return false; }
  void on_ready(std::uint32_t epoll_events) override;
  void on_time() override;

 private:
  static constexpr std::size_t kFrameBytes = 8;

  int watch();
  void unwatch();
  void finish_connect();
  int take_in(os::Fd& fd, const Address& peer);
  void pump_sends();
  bool send_some(Operation& op);  // false: not now, or failed
  ssize_t send_memory(Operation& op);
  ssize_t send_file(const Piece& piece, std::size_t at);
  void pump_receives();
  bool receive_stream(Operation& op);
  bool receive_packet();
  bool read_frame();
  void take_partial(Operation& op);
  void end_begun(OperationList& list);
  void at_end();
  void failed(int error);
  void advance_end();
  [[nodiscard]] bool is_reset() const;
  [[nodiscard]] bool framed() const { return s_.kind == Kind::kPacket; }

  Socket& s_;
  Engine& engine_;
  int number_ = 0;
  bool nonblocking_ = false;  // the descriptor
  bool finish_wanted_ = false;
  bool finish_sent_ = false;
  bool ended_ = false;  // the peer has finished

  // Packets. The front send has sent so much of its frame header; of the message that comes in, so
  // much of its header has come, and so much of it is left.
  bool greeted_ = false;  // by a message that is complete
  std::size_t frame_sent_ = 0;
  std::array<std::uint8_t, 2 * kFrameBytes> frame_out_{};
  std::size_t frame_out_bytes_ = 0;
  std::array<std::uint8_t, kFrameBytes> frame_in_{};
  std::size_t frame_got_ = 0;
  bool greeting_seen_ = false;
  bool in_message_ = false;
  std::size_t message_left_ = 0;
  // That message so far, from a call that did not wait for the rest; some of it may be lost.
  std::vector<std::uint8_t> partial_;
  bool partial_cut_ = false;
  Instant look_again_{};
};

}  // namespace weft::exs
