// One connection, from its first octet to kDisconnected: TCP and MPA start-up are done here, then
// the socket goes to the queue pair.
//
// Threads: calls from any thread; the network side runs on the engine's thread. mutex_ guards the
// set-up. It is never held while a QP or an application is called, except for EventChannel::post(),
// which may not call back. A callback of the engine checks under mutex_ whether it is still wanted,
// so registrations are dropped with io::Engine::forget().
//
//   active    connection_active.cc    connect() .. kEstablished
//   passive   connection_passive.cc   accepted socket .. kConnectRequest .. accept(), reject()
//   both      connection.cc           set-up frames, time limits, hand-over, events, the end
#pragma once

#include <weft/connection.h>

#include <memory>
#include <mutex>
#include <string>

#include "io/engine.h"
#include "io/fd.h"
#include "io/pcap.h"
#include "proto/startup.h"
#include "proto/stream.h"
#include "verbs/device.h"

namespace weft::verbs {

class QueuePairImpl;
class ListenerImpl;

// What the application holds is a handle: when it lets go, retire() ends what is open, with a
// reset, and the object goes once the engine and the queue pair have let go as well.
class ConnectionImpl final : public Connection,
                             public io::Handler,
                             public std::enable_shared_from_this<ConnectionImpl> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Connection>> create(
      std::shared_ptr<DeviceImpl> device, std::shared_ptr<EventChannel> channel);
  // Of a listener: takes the accepted socket.
  [[nodiscard]] static Result<std::shared_ptr<ConnectionImpl>> create_accepted(
      std::shared_ptr<DeviceImpl> device, std::shared_ptr<EventChannel> channel,
      std::shared_ptr<ListenerImpl> listener, io::Fd socket, const SocketAddress& peer);
  ~ConnectionImpl() override;

  // --- Connection ---
  [[nodiscard]] Status bind(const SocketAddress& local, bool reuse_address) override;
  [[nodiscard]] Status connect(std::shared_ptr<QueuePair> qp, const SocketAddress& peer,
                               const ConnectionParams& params) override;
  [[nodiscard]] Status accept(std::shared_ptr<QueuePair> qp,
                              const ConnectionParams& params) override;
  [[nodiscard]] Status reject(std::span<const std::uint8_t> private_data) override;
  [[nodiscard]] Status disconnect() override;
  void abort() override;
  void set_channel(std::shared_ptr<EventChannel> channel) override;
  [[nodiscard]] SocketAddress local_address() const override;
  [[nodiscard]] SocketAddress peer_address() const override;
  [[nodiscard]] std::shared_ptr<QueuePair> qp() const override;
  [[nodiscard]] ConnectionInfo info() const override;

  // --- engine ---
  void on_io(std::uint32_t events) override;
  void on_timer(io::TimerId id) override;

  // --- for the queue pair ---

  // The trace of this connection, begun with the start-up frames; null: tracing is off. The QP
  // takes it inside attach(), once.
  [[nodiscard]] std::unique_ptr<io::Trace> take_trace();
  // The first FPDU of the peer has been accepted. Any thread, at most once, possibly inside
  // attach().
  void on_first_fpdu();
  // The stream has left full operation and all work is flushed. Any thread, once.
  void on_stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer);

  // --- for listener and channel ---
  [[nodiscard]] static ConnectionImpl& of(Connection& connection) {
    return static_cast<ConnectionImpl&>(connection);
  }
  // What the application holds; expired once it has let go.
  [[nodiscard]] std::weak_ptr<Connection> handle() const;
  void start_request();             // begins to wait for the MPA Request
  void delivered();                 // the application has taken the kConnectRequest
  void drop(std::string_view why);  // closes a request that was not answered yet

 private:
  enum class Phase : std::uint8_t {
    kIdle,        // may be bound
    kConnecting,  // TCP handshake
    kStarting,    // MPA frames; passive: the Request is awaited
    kRequested,   // passive: the application's turn
    kAttaching,   // the QP is being given the socket
    kUp,          // the QP has it
    kDown,        // over
  };

  ConnectionImpl(std::shared_ptr<DeviceImpl> device, std::weak_ptr<EventChannel> channel)
      : device_(std::move(device)), channel_(std::move(channel)) {}

  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] std::shared_ptr<Connection> make_handle();
  void retire();  // the application has let go

  // --- connection.cc; all with mutex_ held ---
  [[nodiscard]] Result<proto::StartupOffer> make_offer(const ConnectionParams& params) const;
  void pump(Lock& lock);  // moves start-up frames as far as they go
  [[nodiscard]] bool send_frame(Lock& lock);
  [[nodiscard]] bool receive_frame(Lock& lock);
  void startup_moved(Lock& lock);  // acts on startup_->state()
  void watch(std::uint32_t events);
  void set_deadline(Duration limit);
  void clear_deadline();
  [[nodiscard]] Status hand_over(Lock& lock);
  [[nodiscard]] proto::StreamParams stream_params() const;
  [[nodiscard]] std::uint32_t choose_max_ulpdu(bool loopback) const;
  void close_socket(bool with_reset);
  void release_qp(Lock& lock);
  void post(ConnectionEvent::Type type, std::optional<Error> error = {},
            std::span<const std::uint8_t> private_data = {});
  void set_up_failed(Lock& lock, ConnectionEvent::Type type, Error error, std::string_view why);
  void report_established();
  void report_down();
  void settle_listener();

  // --- connection_active.cc ---
  void on_connected(Lock& lock);
  void tcp_failed(Lock& lock, Error error);
  void on_reply(Lock& lock);

  // --- connection_passive.cc ---
  void on_request(Lock& lock);
  void request_failed(Lock& lock, std::string_view why);
  void peer_left(Lock& lock);

  const std::shared_ptr<DeviceImpl> device_;
  mutable std::mutex mutex_;
  std::weak_ptr<EventChannel> channel_;
  std::weak_ptr<Connection> handle_;
  Phase phase_ = Phase::kIdle;
  bool initiator_ = false;
  io::Fd socket_;
  bool bound_ = false;
  bool registered_ = false;
  std::uint32_t watched_ = 0;
  io::TimerId timer_ = 0;
  Instant deadline_ = Instant::never();  // a timer that comes before it is a late one
  SocketAddress local_, peer_;
  ConnectionParams params_;
  std::unique_ptr<proto::Startup> startup_;
  std::unique_ptr<io::Trace> trace_;
  std::shared_ptr<QueuePairImpl> qp_;      // during set-up
  std::weak_ptr<QueuePairImpl> attached_;  // afterwards
  ConnectionInfo info_;
  FpduPolicy fpdu_ = FpduPolicy::kAuto;

  // passive
  std::weak_ptr<ListenerImpl> listener_;
  bool counts_in_listener_ = false;

  // the end
  bool await_first_fpdu_ = false;  // kEstablished waits for it
  bool startup_failure_ = false;   // the only FPDU is a Terminate
  bool established_ = false;       // kEstablished has been posted
  bool first_fpdu_seen_ = false;
  bool timed_out_ = false;
  bool down_seen_ = false;
  proto::StreamEnd end_ = proto::StreamEnd::kOpen;
  TerminateCode end_code_;
  bool end_by_peer_ = false;
};

}  // namespace weft::verbs
