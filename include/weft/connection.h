// Connections: MPA start-up (RFC 5044 7.1, RFC 6581) over TCP, and how they end.
//
// A Connection joins one QP to one peer. Everything that happens to it is reported in order on its
// EventChannel, from the engine's own thread; no call here waits for the network.
//
//   active    create -> [bind] -> connect(qp) -> kEstablished, or one of kRejected, kUnreachable
//                                                and kConnectError
//   passive   Listener -> kConnectRequest -> reject(), or accept(qp) -> kEstablished or
//                                                kConnectError
//   both      after kEstablished one kDisconnected, whatever ended the connection
#pragma once

#include <weft/address.h>
#include <weft/config.h>
#include <weft/queue_pair.h>
#include <weft/result.h>
#include <weft/wiring.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#pragma GCC visibility push(default)
namespace weft {

class Connection;
class Listener;

// A queue pair that a connection only carries to the peer: rdma_cm of RoCE-like devices, where the
// program (or librdmacm) connects the queue pairs by what they tell each other (<weft/wiring.h>).
struct CarriedQp {
  Gid gid{};
  std::uint32_t number = 0;      // 24 bits; of a queue pair, or whatever the program says
  std::uint32_t psn = 0;         // 24 bits: it sends from this one on
  std::uint8_t retry_count = 7;  // how often the peer shall retry, 0 to 7
  std::uint8_t rnr_retry = 7;    // ... when this end has no receive
  bool shared_queue = false;
};

struct ConnectionEvent {
  enum class Type : std::uint8_t {
    kConnectRequest,  // connection: new, not accepted yet; private_data, ird/ord: what the peer
                      // sent
    kResponse,        // instead of kEstablished, where the connection carries a queue pair: the
                      // peer's answer; establish() or abort() is due
    kEstablished,     // private_data: the peer's reply (active side only)
    kRejected,        // error kRefused: by the peer's application, private_data may say why;
                      // kConnectionLost: no listener there, or reset
    kUnreachable,     // error kTimedOut or kUnreachable
    kConnectError,    // anything else went wrong during set-up; error and reason say what
    kDisconnected,    // error: none (orderly), else what ended it
  };
  Type type{};
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Listener> listener;  // kConnectRequest: whose
  std::optional<Error> error;
  std::optional<CarriedQp> carried;        // kConnectRequest, kResponse: the peer's
  std::vector<std::uint8_t> private_data;  // exactly what the peer's application gave
  std::uint16_t ird = 0;  // kConnectRequest: peer's ORD wish, what we should serve at most
  std::uint16_t ord = 0;  // kConnectRequest: peer's IRD; kEstablished: negotiated values
};
[[nodiscard]] std::string_view describe(ConnectionEvent::Type type);

namespace verbs {
class EventChannelImpl;
}

// A queue of connection events with a pollable descriptor. Any thread. Not bounded by the peer: a
// listener accepts no more while as many requests as its backlog wait here. A request that the
// program has not taken counts even if its peer has gone.
class EventChannel {
 public:
  virtual ~EventChannel() = default;
  [[nodiscard]] virtual int fd() const = 0;  // readable while an event waits; O_NONBLOCK is honored
  // As CompletionChannel::wait: kTimedOut, kAborted.
  [[nodiscard]] virtual Result<ConnectionEvent> next(
      std::optional<std::chrono::nanoseconds> timeout) = 0;
  // Appends an event. The engine delivers by this call alone, from any of its threads, so that an
  // adapter can derive its own channel (rdma_cm does). It must not wait nor call back into the
  // engine. The adapter says with Connection::request_taken() that the program has a request.
  // May throw std::bad_alloc, with nothing changed, `event` included.
  virtual void post(ConnectionEvent&& event) = 0;
  // The library's own channel, whose events it moves and drops. Null: an adapter's.
  [[nodiscard]] virtual verbs::EventChannelImpl* own() noexcept { return nullptr; }
  [[nodiscard]] static Result<std::shared_ptr<EventChannel>> create();
};

// The offer of one side. 0xffff in ird/ord: the device's maximum.
struct ConnectionParams {
  std::vector<std::uint8_t> private_data;  // at most limits::kPrivateDataBytes
  std::uint16_t ird = 0xffff;
  std::uint16_t ord = 0xffff;
  // Set: the connection carries this queue pair, and no stream runs on it. Of both ends or none.
  std::optional<CarriedQp> carried;
  // The port to connect to is one of rdma_cm, see Listener::bind_service().
  bool by_service = false;
  ConnectionPolicy policy;  // what is unset comes from the device's Config
  // IP_TOS or IPV6_TCLASS of the connection's packets; its two ECN bits are left to TCP. Unset:
  // what the system gives. Of the passive side: from its Reply on.
  std::optional<std::uint8_t> traffic_class;
};

class Connection {
 public:
  // Closes in order, in the background, whatever is still open. Gives up a set-up.
  virtual ~Connection() = default;

  // Binds the local end: reserves the port. Port 0 chooses one.
  //   kAddressInUse, kPermission, kInvalidArgument (no local address), kBadState (bound or
  //   connected)
  [[nodiscard]] virtual Status bind(const SocketAddress& local, bool reuse_address = false) = 0;

  // Takes over the caller's TCP socket `fd` in place of bind(): one that is bound, not bound, or
  // connected already; then connect() starts with the MPA Request, and its `peer` is what
  // peer_address() shows. The descriptor is closed with the connection, O_NONBLOCK is set on it.
  //   kInvalidArgument (not a TCP socket; it stays the caller's), kBadState (bound or connected)
  [[nodiscard]] virtual Status adopt(int fd) = 0;

  // Starts TCP and MPA to `peer` for `qp`, which must be in INIT and have no connection. With
  // params.carried there is no `qp`.
  //   kInvalidArgument   private data too long, or ird/ord over the device's limits
  //   kBadState          used before, or the QP is not in INIT
  // What fails later comes as an event.
  [[nodiscard]] virtual Status connect(std::shared_ptr<QueuePair> qp, const SocketAddress& peer,
                                       const ConnectionParams& params) = 0;

  // Answer to kConnectRequest.
  //   kConnectionLost   the peer has gone meanwhile
  //   kBadState         answered before, or not a request
  [[nodiscard]] virtual Status accept(std::shared_ptr<QueuePair> qp,
                                      const ConnectionParams& params) = 0;
  [[nodiscard]] virtual Status reject(std::span<const std::uint8_t> private_data) = 0;
  // Active, after kResponse: tells the peer that the queue pairs are ready, which gets
  // kEstablished.
  //   kBadState   no answer has come, or it is established
  [[nodiscard]] virtual Status establish() = 0;
  // For adapters with an EventChannel of their own: the program has taken the kConnectRequest,
  // which no longer counts against the listener's backlog. accept(), reject() and the end of this
  // object imply it. Repeating it is harmless.
  virtual void request_taken() = 0;

  // Orderly: what TCP takes at once is sent, the rest is flushed, then FIN; kDisconnected follows
  // on both sides. Repeating it is harmless. One that only carries the numbers of queue pairs: the
  // side that begins hears the end when the other has called this too, or has let go, or after
  // close_timeout.   kBadState: never established
  [[nodiscard]] virtual Status disconnect() = 0;
  // At once, with a reset. All work is flushed before it returns.
  virtual void abort() = 0;

  // Events go to `channel` from now on; those not yet taken move along in order (only between
  // channels made by EventChannel::create()).
  virtual void set_channel(std::shared_ptr<EventChannel> channel) = 0;

  [[nodiscard]] virtual SocketAddress local_address() const = 0;
  [[nodiscard]] virtual SocketAddress peer_address() const = 0;
  [[nodiscard]] virtual std::shared_ptr<QueuePair> qp() const = 0;
  [[nodiscard]] virtual ConnectionInfo info() const = 0;  // what was negotiated

  void* context = nullptr;  // the caller's
};

class Listener {
 public:
  // As close(), once nobody holds it: the engine may do so for a moment.
  virtual ~Listener() = default;
  [[nodiscard]] virtual Status bind(const SocketAddress& local, bool reuse_address = false,
                                    bool v6_only = false) = 0;
  // As bind(), in the space of rdma_cm's ports: UDP port P keeps the number, and tells peers which
  // TCP port serves it (docs/rdma-cm-ports.md). Where Config::port_map is off, as bind() with
  // reuse_address. On a RoCE-like device the connections carry queue pairs
  // (ConnectionParams::carried).
  [[nodiscard]] virtual Status bind_service(const SocketAddress& local, bool v6_only) = 0;
  // A TCP listener of the program wants TCP port `port`. If this listener has it, another port
  // serves from now on. False: it has not, or no other port is to be had.
  virtual bool yield_port(std::uint16_t port) = 0;
  // Takes over the caller's bound TCP socket in place of bind(). As Connection::adopt().
  [[nodiscard]] virtual Status adopt(int fd) = 0;
  // Treats the connected TCP socket `fd`, which the caller accepted by other means, as one that
  // came in here: its MPA Request is awaited, kConnectRequest follows. The listener need not
  // listen. If no Request comes the socket is closed, and nobody is told.
  //   kInvalidArgument   not a TCP socket: `fd` stays the caller's
  //   kBadState, kLimitExceeded   nobody would be told, too many connections: `fd` is closed
  [[nodiscard]] virtual Status hand_in(int fd) = 0;
  // backlog: how many requests may wait for the program; <= 0 or above limits::kBacklog: that
  // limit. Nobody is accepted while so many wait, and Requests of connections that were accepted
  // before are held back, in order. These, and connections without a Request, do not count: see
  // limits::kHalfOpenConnections.
  //   kAddressInUse
  [[nodiscard]] virtual Status listen(int backlog) = 0;
  // Stops listening: its port is free, and requests not yet delivered are closed.
  virtual void close() = 0;
  virtual void set_channel(std::shared_ptr<EventChannel> channel) = 0;
  [[nodiscard]] virtual SocketAddress local_address() const = 0;
  void* context = nullptr;
};

}  // namespace weft
#pragma GCC visibility pop
