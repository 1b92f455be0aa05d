// Queue pairs and shared receive queues.
//
// Any thread may post on any QP; posts to one queue are serialized inside. No post makes a system
// call other than the transport's own, sleeps or allocates.
#pragma once

#include <weft/address.h>
#include <weft/completion.h>
#include <weft/link.h>
#include <weft/memory.h>
#include <weft/result.h>
#include <weft/types.h>
#include <weft/wiring.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#pragma GCC visibility push(default)
namespace weft {

class Connection;

// Names of the verbs. Others than kRc exist on devices with Config::personality kRoce only.
enum class QpType : std::uint8_t {
  kRc,  // reliable connected
  kUc,  // unreliable connected: Sends and Writes; what its peer cannot take is lost without a word
  // Unreliable datagram: Sends of up to 4096 octets, each to the peer it names; the same of loss. A
  // receive has room for 40 octets more, the route header. Moves between the states by modify().
  kUd,
};

struct QpOptions {
  QpType type = QpType::kRc;
  std::shared_ptr<CompletionQueue> send_cq;  // REQUIRED
  std::shared_ptr<CompletionQueue> recv_cq;  // REQUIRED; may be the same
  std::shared_ptr<SharedReceiveQueue> srq;   // null: the QP has its own receive queue
  std::uint32_t max_send_wr = 128;
  std::uint32_t max_recv_wr = 128;  // ignored with an SRQ
  std::uint32_t max_send_sge = 4;
  std::uint32_t max_recv_sge = 4;
  std::uint32_t max_inline_bytes = 64;  // rounded up to what the slot holds; see caps()
  bool signal_all = false;
  void* context = nullptr;
  // kUd: whether this queue pair takes datagrams to that GID of this machine; null: to any. Asked
  // by any thread, with locks held: it must not wait, nor call back.
  std::function<bool(const Gid&)> has_gid;
  // Hears of messages that come before their receive, and how long they have waited; null: nobody.
  // Called by any thread, with locks held: it must not wait, nor call back.
  std::function<void(LateReceive, std::chrono::nanoseconds)> on_late_receive;
  // Hears why a request of the peer, or one of this side, may not use memory. As on_late_receive.
  std::function<void(const RefusedMemory&)> on_refused_memory;
  // Hears of the steps of requests and messages; null: nobody. Not of kUd. As on_late_receive.
  std::function<void(const Step&)> on_step;
  // Hears what the peer does with memory of this side; null: nobody. Not of kUd. As
  // on_late_receive.
  std::function<void(const PeerAccess&)> on_peer_access;
  // For tests: how bad the link of a new connection to this peer is; with kUd that of the queue
  // pair, once, and the peer is of no family. Asked as on_late_receive is called; null: it is as
  // good as the network.
  std::function<LinkTrouble(const SocketAddress& peer)> link;
  // For tests, kRc and kUc: a message meets its receive so much later than it comes, as if that had
  // been posted late. Asked once for each, as on_late_receive is called; null: at once.
  std::function<std::chrono::nanoseconds()> receive_late;
  // For tests, kRc and kUc: the last octets of a Write are placed so much before the others. Asked
  // for each piece that comes, as on_late_receive is called; 0, and null: in their order.
  std::function<std::chrono::nanoseconds()> last_octets_first;
};

struct QpCaps {
  std::uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_bytes;
};

struct QpAttributes {
  QpState state;
  QpCaps caps;
  std::uint16_t ird, ord;  // negotiated once connected
  Access remote_access;    // what the peer may do on this QP at all (with the regions' rights)
  std::uint32_t sq_outstanding, rq_outstanding;
  std::uint32_t sq_taken;  // slots of the send queue that no polled completion has freed yet
};

// How many requests of a list were taken, and why the next one was not.
struct Posted {
  std::size_t count = 0;
  Error error{};  // meaningful when count < the number given
};

class QueuePair {
 public:
  // Completes nothing more, and drops completions that nobody has polled yet. What TCP has taken
  // still arrives: the connection is closed in order, in the background, within close_timeout.
  virtual ~QueuePair() = default;

  [[nodiscard]] virtual QpType type() const = 0;
  [[nodiscard]] virtual std::uint32_t number() const = 0;
  [[nodiscard]] virtual QpState state() const = 0;
  [[nodiscard]] virtual QpCaps caps() const = 0;
  [[nodiscard]] virtual QpAttributes query() const = 0;
  [[nodiscard]] virtual void* context() const = 0;
  [[nodiscard]] virtual std::shared_ptr<Connection> connection() const = 0;

  // Posts in order, one doorbell for all of them; stops at the first that cannot be taken. In the
  // error state requests are taken and flushed at once.
  //   kNoSpace          the queue is full: poll completions, which frees their slots; post again
  //   kInvalidArgument  too many SGEs or inline bytes, bad operation, message too long
  //   kBadState         the QP is in RESET, INIT or RTR (receives may be posted from INIT on)
  virtual Posted post_send(std::span<const SendWr> wrs) = 0;
  virtual Posted post_recv(std::span<const RecvWr> wrs) = 0;
  Status post_send(const SendWr& wr) { return as_status(post_send(std::span(&wr, 1))); }
  Status post_recv(const RecvWr& wr) { return as_status(post_recv(std::span(&wr, 1))); }

  // Queues one request without a doorbell; ring() then transmits. For adapters that walk lists.
  [[nodiscard]] virtual Status queue_send(const SendWr& wr) = 0;
  virtual void ring() = 0;

  // RESET -> INIT is where a new QP starts (INIT). kError flushes everything, kSqd drains the send
  // side (kSqDrained event), kReset empties a QP that is not connected and drops its completions.
  // Moves to RTR and RTS are made by the connection: to ask for one changes nothing until then.
  //   kBadState   no such move from here; nothing changed
  [[nodiscard]] virtual Status modify(QpState to) = 0;
  virtual void set_remote_access(Access access) = 0;
  // kUd: the key that datagrams to it have to bring.   kUnsupported: of another type
  [[nodiscard]] virtual Status set_datagram_key(std::uint32_t key) = 0;

  // Queue pairs wired by hand, on a device with Config::personality kRoce. There a new one begins
  // in RESET, and one without a Connection obeys: wire() is the move from INIT to RTR, and
  // start_sending() that from RTR to RTS. Neither waits for the peer. Requests posted before it is
  // there wait in the queue; if it does not come within the retries of WiringToSend, the oldest
  // ends with kRetryExceeded, and the queue pair is in the error state. (Those of a kUc queue pair
  // are lost after 200 ms, and complete as if they had been sent.) modify() to kReset is possible
  // from every state, and drops completions that nobody has polled yet; the queue pair can then be
  // wired anew.
  //   kBadState          not in INIT (RTR)
  //   kInvalidArgument   no GID or number of a queue pair; PSNs above 24 bits
  //   kUnsupported       the device has another personality
  [[nodiscard]] virtual Status wire(const WiringToReceive& attributes) = 0;
  [[nodiscard]] virtual Status start_sending(const WiringToSend& attributes) = 0;

 private:
  static Status as_status(Posted posted) {
    if (posted.count == 1) return {};
    return tl::unexpected(posted.error);
  }
};

struct SrqOptions {
  std::uint32_t max_wr = 128;
  std::uint32_t max_sge = 4;
  std::uint32_t limit = 0;  // event once fewer than this many receives are posted; 0 = off
  void* context = nullptr;
};

class SharedReceiveQueue {
 public:
  virtual ~SharedReceiveQueue() = default;
  virtual Posted post_recv(std::span<const RecvWr> wrs) = 0;
  // Receives that no message has taken.
  [[nodiscard]] virtual std::uint32_t posted() const = 0;
  // Re-arms the limit event.  kInvalidArgument: above max_wr
  [[nodiscard]] virtual Status set_limit(std::uint32_t limit) = 0;
  //   kInvalidArgument: fewer than are posted, or over the limit
  [[nodiscard]] virtual Status resize(std::uint32_t max_wr) = 0;
  [[nodiscard]] virtual std::uint32_t max_wr() const = 0;
  [[nodiscard]] virtual std::uint32_t max_sge() const = 0;
  [[nodiscard]] virtual std::uint32_t limit() const = 0;
  [[nodiscard]] virtual std::uint32_t number() const = 0;
  [[nodiscard]] virtual void* context() const = 0;
  [[nodiscard]] virtual std::size_t users() const = 0;  // QPs attached
};

}  // namespace weft
#pragma GCC visibility pop
