// One connection, from its first octet to kDisconnected: TCP is set up here, proto::Session decides
// about MPA start-up, and then the socket goes to the queue pair.
//
// Threads: calls from any thread; the network side runs on the engine's thread. mutex_ guards the
// set-up. It is never held while a QP or an application is called, except for EventChannel::post(),
// which may not call back. A callback of the engine checks under mutex_ whether it is still wanted,
// so registrations are dropped with io::Engine::forget(). Lock order: mutex_, the listener's, a
// channel's.
//
//   active    connection_active.cc    connect() .. Reply
//   passive   connection_passive.cc   accepted socket .. kConnectRequest .. accept(), reject()
//   set-up    connection_setup.cc     the session's frames and time limits, hand-over to the QP
//   carried   connection_carried.cc   one that only carries the numbers of queue pairs (RoCE-like)
//   service   connection_service.cc   asks the peer which TCP port serves a port of rdma_cm
//   both      connection.cc           handles, events, the end
//
// What the application holds is a handle: when it lets go, retire() ends what is open, with a
// reset, and the object goes once the engine and the queue pair have let go as well.
#pragma once

#include <weft/connection.h>

#include <array>
#include <cassert>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "io/engine.h"
#include "os/guarded.h"
#include "os/lock.h"
#include "proto/session.h"
#include "proto/stream.h"
#include "trace/pcap.h"
#include "verbs/connection_phases.h"
#include "verbs/device.h"
#include "verbs/held.h"
#include "verbs/listener_host.h"
#include "verbs/port_map_service.h"
#include "verbs/qp_connection.h"
#include "verbs/setup_socket.h"

namespace weft::verbs {

class QueuePairImpl;

class ConnectionImpl final : public QpConnection,
                             public io::Handler,
                             public std::enable_shared_from_this<ConnectionImpl> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Connection>> create(
      std::shared_ptr<DeviceImpl> device, const std::shared_ptr<EventChannel>& channel);
  // For a listener: takes the accepted socket. The listener holds it until the Request is there.
  // `local`: unspecified where the socket has to be asked.
  [[nodiscard]] static Result<std::shared_ptr<ConnectionImpl>> create_accepted(
      std::shared_ptr<DeviceImpl> device, const std::shared_ptr<EventChannel>& channel,
      const std::shared_ptr<ListenerHost>& listener, os::Fd socket, const SocketAddress& peer,
      const SocketAddress& local);
  ~ConnectionImpl() override;

  // --- Connection ---
  [[nodiscard]] Status bind(const SocketAddress& local, bool reuse_address) override;
  [[nodiscard]] Status adopt(int fd) override;
  [[nodiscard]] Status connect(std::shared_ptr<QueuePair> qp, const SocketAddress& peer,
                               const ConnectionParams& params) override;
  [[nodiscard]] Status accept(std::shared_ptr<QueuePair> qp,
                              const ConnectionParams& params) override;
  [[nodiscard]] Status reject(std::span<const std::uint8_t> private_data) override;
  void request_taken() override;
  [[nodiscard]] Status establish() override;
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

  [[nodiscard]] std::unique_ptr<trace::Trace> take_trace() override;
  void on_first_fpdu() override;
  void on_stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) override;

  // --- for the listener ---
  [[nodiscard]] static ConnectionImpl& of(Connection& connection) {
    return static_cast<ConnectionImpl&>(connection);
  }
  // Begins to wait for the MPA Request. `at_once`: it may be there already, so that is looked at
  // first. `inherited`: the socket has from its listener what io::tune_listening() sets.
  void start_request(bool at_once, bool inherited);
  // A newcomer needs its place: ends the wait with a reset, unless the application knows of the
  // Request by now.
  void give_way();
  // The Request, which had to wait, has got a place in the listener's backlog.
  void report_request();
  void your_turn();  // it is the first of those that were refused by its peer
  // It is the first of those that ask its peer. What the one before has learned; 0: nobody answers.
  void turn_to_ask(std::optional<std::uint16_t> tcp_port);
  void drop(std::string_view why);  // ends the wait for a Request

 private:
  using Phase = ConnectionPhase;
  // How this connection counts at its listener.
  enum class AtListener : std::uint8_t { kNot, kHalfOpen, kUndelivered };
  // The fate of the peer's Request, on the passive side.
  struct Request {
    AtListener counted = AtListener::kNot;
    bool told = false;  // the application knows of it
    bool lost = false;  // the peer left before it was answered
  };

  // Holds mutex_. What may run other people's destructors is given to dispose() and goes after the
  // mutex has been released.
  class WEFT_SCOPED_CAPABILITY Lock {
   public:
    explicit Lock(const ConnectionImpl& c) WEFT_ACQUIRE(c.mutex_) : of_(c), lock_(c.mutex_) {}
    ~Lock() WEFT_RELEASE() {}
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    // Not analyzed: a Lock is handed down as a reference, which the analysis does not follow. In
    // between it takes the mutex for held.
    void unlock() WEFT_NOT_ANALYZED { lock_.unlock(); }
    void relock() WEFT_NOT_ANALYZED {
      if (!lock_.held()) lock_.lock();
    }
    // For functions that the analysis enters without knowing their caller's locks.
    void covers(const ConnectionImpl& c) const WEFT_ASSERT_HELD(c.mutex_) {
      assert(&of_ == &c && lock_.held());
    }
    // Tells the analysis what it can't see: the caller of a part holds the mutex, or no other
    // thread knows the connection yet.
    static void assume(const ConnectionImpl& c) WEFT_ASSERT_HELD(c.mutex_) { static_cast<void>(c); }
    // Needs no memory. Each object is kept once, and a call meets few.
    template <class T>
    void dispose(std::shared_ptr<T> object) {
      for (auto& place : trash_) {
        if (object == nullptr || place == object) return;
        if (place == nullptr) place = std::move(object);
      }
      assert(object == nullptr);
    }

   private:
    const ConnectionImpl& of_;
    std::array<std::shared_ptr<const void>, 8> trash_;
    os::MutexLock lock_;
  };

  // A queue pair that this set-up has taken. It is free again unless the set-up keeps it.
  class Reservation {
   public:
    Reservation() = default;
    explicit Reservation(std::shared_ptr<QueuePairImpl> qp) noexcept : qp_(std::move(qp)) {}
    Reservation(Reservation&&) = default;
    Reservation& operator=(Reservation&&) = delete;
    ~Reservation();
    // Empty: the QP is not free to be connected.
    [[nodiscard]] static Reservation of(const std::shared_ptr<QueuePair>& qp, ConnectionImpl& by);
    explicit operator bool() const noexcept { return qp_ != nullptr; }
    [[nodiscard]] std::shared_ptr<QueuePairImpl> keep() { return std::move(qp_); }

   private:
    std::shared_ptr<QueuePairImpl> qp_;
  };

  // Parts of the connection, with mutex_ held.

  // A connection that only carries the numbers of queue pairs. connection_carried.cc
  class Carrier {
   public:
    explicit Carrier(ConnectionImpl& connection) noexcept : c_(connection) {}
    void choose(bool carries) noexcept { carries_ = carries; }
    [[nodiscard]] bool carries() const noexcept { return carries_; }
    // Both ends know that the queue pairs are ready.
    [[nodiscard]] bool is_up() const noexcept { return up_; }
    [[nodiscard]] Status fill(const ConnectionParams& params, proto::StartupOffer& offer);
    [[nodiscard]] std::span<const std::uint8_t> take(ConnectionEvent& event) const;
    [[nodiscard]] bool speaks_as(bool carrying) const;
    void begin(Lock& lock);
    [[nodiscard]] Status establish();
    void disconnect();
    void read(Lock& lock);
    void ended(Lock& lock, std::optional<Error> error);
    void end(Lock& lock, bool tell);

   private:
    [[nodiscard]] bool say(std::uint8_t what);
    void peer_disconnects(Lock& lock);
    void tell_end(Lock& lock, std::optional<Error> error);
    void close();

    ConnectionImpl& c_;
    bool carries_ = false;
    bool up_ = false;
    bool ends_ = false;                     // disconnect() was called
    bool peer_ended_ = false;               // the peer's was, and the program knows
    std::vector<std::uint8_t> frame_data_;  // header and private data of our frame
  };

  // Which TCP port serves a port of rdma_cm. connection_service.cc
  class PortSearch {
   public:
    explicit PortSearch(ConnectionImpl& connection) noexcept : c_(connection) {}
    void choose(bool by_service) noexcept { by_service_ = by_service; }
    // 0: not known, or no other than the port of rdma_cm.
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    [[nodiscard]] bool is_needed() const noexcept { return by_service_ && port_ == 0; }
    void forget() noexcept { port_ = 0; }
    void begin(Lock& lock);
    void go_on(Lock& lock, std::optional<std::uint16_t> learned);
    void ask_again(Lock& lock);
    void read(Lock& lock);
    void stop(Lock& lock, std::optional<std::uint16_t> learned);

   private:
    void ask_first(Lock& lock);
    void port_is(Lock& lock, std::uint16_t port);
    void nobody_answers(Lock& lock);

    ConnectionImpl& c_;
    bool by_service_ = false;
    std::uint16_t port_ = 0;
    bool asks_ = false;  // among asking_peers(); the first of them has a question
    PortQuestion question_;
    std::uint32_t asked_times_ = 0;
  };

  // How long a TCP handshake may take, and how often it is tried where nobody listens.
  // connection_active.cc
  class Attempts {
   public:
    explicit Attempts(ConnectionImpl& connection) noexcept : c_(connection) {}
    void begin(Duration connect_timeout, Duration refused_wait) noexcept;
    [[nodiscard]] Instant until() const noexcept { return until_; }
    // True: others wait for the same peer, and this one behind them.
    [[nodiscard]] bool queue_up();
    [[nodiscard]] bool try_again_later();
    void wait_no_more(Lock& lock);

   private:
    ConnectionImpl& c_;
    Instant until_;          // end of the TCP handshake
    Instant refused_until_;  // a refusal later than this counts
    Duration pause_{0};
    bool refused_ = false;  // in RefusedPeers
  };

  ConnectionImpl(std::shared_ptr<DeviceImpl> device, ObjectCount counted,
                 std::weak_ptr<EventChannel> channel);
  [[nodiscard]] std::shared_ptr<Connection> make_handle() WEFT_REQUIRES(mutex_);
  void retire();  // the application has let go

  // All below: with mutex_ held.

  // --- connection_setup.cc ---
  [[nodiscard]] Result<proto::StartupOffer> make_offer(const ConnectionParams& params)
      WEFT_REQUIRES(mutex_);
  // Does a part of the set-up, and ends that where there is no memory, no descriptor or no timer.
  template <class Work>
  void step(Lock& lock, Work work) WEFT_REQUIRES(mutex_);
  void end_for_want(Lock& lock, Error of_what) WEFT_REQUIRES(mutex_);
  // Moves start-up frames as far as they go.
  void pump(Lock& lock) WEFT_REQUIRES(mutex_);
  // Does what the session asks for, and tells what it has to tell.
  void follow(Lock& lock) WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool send_frame() WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool receive_frame(bool& dry) WEFT_REQUIRES(mutex_);
  void on_failed(Lock& lock) WEFT_REQUIRES(mutex_);
  void hand_over(Lock& lock) WEFT_REQUIRES(mutex_);
  // Calls the queue pair without the mutex.
  template <class Call>
  void with_qp(Lock& lock, Call call) WEFT_REQUIRES(mutex_);
  [[nodiscard]] proto::StreamParams stream_params() WEFT_REQUIRES(mutex_);
  void release_qp(Lock& lock) WEFT_REQUIRES(mutex_);

  // The program knows of it: it called connect() or accept().
  [[nodiscard]] bool is_ours() const noexcept WEFT_REQUIRES(mutex_) {
    return qp_ != nullptr || carrier_.carries();
  }

  // --- connection_active.cc ---
  [[nodiscard]] Status begin(const std::shared_ptr<QueuePair>& qp, const SocketAddress& peer,
                             const ConnectionParams& params) WEFT_REQUIRES(mutex_);
  void start(Lock& lock, const ConnectionParams& params, const SocketAddress& reached)
      WEFT_REQUIRES(mutex_);
  void start_handshake(Lock& lock) WEFT_REQUIRES(mutex_);
  void on_connected(Lock& lock, SocketAddress reached) WEFT_REQUIRES(mutex_);
  void tcp_failed(Lock& lock, Error error) WEFT_REQUIRES(mutex_);
  void on_rejected(Lock& lock) WEFT_REQUIRES(mutex_);

  // --- connection_passive.cc ---
  [[nodiscard]] Status answer(const std::shared_ptr<QueuePair>& qp, const ConnectionParams& params)
      WEFT_REQUIRES(mutex_);
  void on_request(Lock& lock) WEFT_REQUIRES(mutex_);
  void tell_request(Lock& lock, const std::shared_ptr<ListenerHost>& listener)
      WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool awaits_answer() const WEFT_REQUIRES(mutex_);
  void request_failed(Lock& lock, std::string_view why, bool with_reset = false)
      WEFT_REQUIRES(mutex_);
  void settle_listener(Lock& lock) WEFT_REQUIRES(mutex_);

  // --- connection.cc ---
  void post(Lock& lock, ConnectionEvent event) WEFT_REQUIRES(mutex_);
  // Ends a set-up that the application knows of.
  void set_up_failed(Lock& lock, ConnectionEvent::Type type, Error error, std::string_view why,
                     std::span<const std::uint8_t> private_data = {}) WEFT_REQUIRES(mutex_);
  void report_established(Lock& lock) WEFT_REQUIRES(mutex_);
  void report_down(Lock& lock) WEFT_REQUIRES(mutex_);
  void end_now(Lock& lock, bool tell) WEFT_REQUIRES(mutex_);

  const std::shared_ptr<DeviceImpl> device_;
  const ObjectCount object_;
  mutable os::Mutex mutex_;
  std::weak_ptr<EventChannel> channel_ WEFT_GUARDED_BY(mutex_);
  std::weak_ptr<Connection> handle_ WEFT_GUARDED_BY(mutex_);
  bool has_handle_ = false;  // set before the handle is given out
  PhaseOfConnection phase_ WEFT_GUARDED_BY(mutex_);
  proto::Session session_ WEFT_GUARDED_BY(mutex_);
  SetupSocket socket_ WEFT_GUARDED_BY(mutex_);
  SocketAddress local_ WEFT_GUARDED_BY(mutex_);
  SocketAddress peer_ WEFT_GUARDED_BY(mutex_);
  FpduPolicy fpdu_ WEFT_GUARDED_BY(mutex_) = FpduPolicy::kAuto;
  PathMode path_ WEFT_GUARDED_BY(mutex_) = PathMode::kTcp;
  std::shared_ptr<QueuePairImpl> qp_
      WEFT_GUARDED_BY(mutex_);  // from connect() or accept() until the stream is down
  ConnectionInfo info_ WEFT_GUARDED_BY(mutex_);
  std::optional<ConnectionEvent> unsent_
      WEFT_GUARDED_BY(mutex_);  // the last one, for which there was no memory

  Carrier carrier_ WEFT_GUARDED_BY(mutex_){*this};
  PortSearch port_search_ WEFT_GUARDED_BY(mutex_){*this};
  Attempts attempts_ WEFT_GUARDED_BY(mutex_){*this};

  // passive
  std::weak_ptr<ListenerHost> listener_ WEFT_GUARDED_BY(mutex_);
  Request request_ WEFT_GUARDED_BY(mutex_);
};

template <class Work>
void ConnectionImpl::step(Lock& lock, Work work) {
  const Status done = os::guarded([&]() -> Status {
    work();
    return {};
  });
  lock.relock();
  const std::optional<Error> lack = socket_.lack();
  if (done && !lack) return;
  const Error of_what = done ? *lack : done.error();
  static_cast<void>(os::guarded([&]() -> Status {
    lock.covers(*this);
    end_for_want(lock, of_what);
    return {};
  }));
}

template <class Call>
void ConnectionImpl::with_qp(Lock& lock, Call call) {
  const std::shared_ptr<QueuePairImpl> qp = qp_;
  lock.unlock();
  call(*qp);
  lock.relock();
  lock.dispose(qp);
}

}  // namespace weft::verbs
