// A queue pair: work queues to post to, states, and what the stream on its lane asks of them.
//
// The bytes are the lane's business (lane.h). What is done here between posts and completions runs
// with the lane held.
//
// Lock order: the lane's, then sq_lock_, rq_lock_, the CQ's ring lock, pools.
#pragma once

#include <weft/limits.h>
#include <weft/queue_pair.h>

#include <atomic>
#include <memory>
#include <optional>

#include "io/lock.h"
#include "io/transport.h"
#include "proto/stream.h"
#include "proto/work.h"
#include "trace/pcap.h"
#include "verbs/cq_user.h"
#include "verbs/device.h"
#include "verbs/lane.h"

namespace weft::verbs {

class CompletionQueueImpl;
class ConnectionImpl;
class ProtectionDomainImpl;
class SharedReceiveQueueImpl;
class Wiring;

class QueuePairImpl final : public QueuePair,
                            public CqUser,
                            public LaneOwner,
                            public CounterSource,
                            public std::enable_shared_from_this<QueuePairImpl> {
 public:
  // What the application holds: when it lets go, the QP is retired, but an orderly end under way
  // (FIN, Terminate) is still carried out.
  [[nodiscard]] static Result<std::shared_ptr<QueuePair>> create(
      std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options);
  ~QueuePairImpl() override;

  // --- QueuePair ---
  [[nodiscard]] QpType type() const override { return type_; }
  [[nodiscard]] std::uint32_t number() const override { return number_; }
  [[nodiscard]] QpState state() const override { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] QpCaps caps() const override { return caps_; }
  [[nodiscard]] QpAttributes query() const override;
  [[nodiscard]] void* context() const override { return context_; }
  [[nodiscard]] std::shared_ptr<Connection> connection() const override;
  Posted post_send(std::span<const SendWr> wrs) override;
  Posted post_recv(std::span<const RecvWr> wrs) override;
  [[nodiscard]] Status queue_send(const SendWr& wr) override;
  void ring() override;
  [[nodiscard]] Status modify(QpState to) override;
  void set_remote_access(Access access) override;
  [[nodiscard]] Status set_datagram_key(std::uint32_t /*key*/) override {
    return fail(Error::kUnsupported);
  }
  [[nodiscard]] Status wire(const WiringToReceive& attributes) override;
  [[nodiscard]] Status start_sending(const WiringToSend& attributes) override;

  // --- for the wiring: qp_wired.cc ---
  // Takes over a transport whose peer has been greeted.
  //   kBadState   not in RTR or RTS of this generation (a count of wire() calls), linked already,
  //   or
  //               the peer expects another PSN
  [[nodiscard]] Status link(std::unique_ptr<io::Transport> transport,
                            std::unique_ptr<trace::Trace> trace, const proto::StreamParams& params,
                            std::uint32_t generation, std::uint32_t peer_psn);
  // Looks for work without a connection, which the wiring has not been told of. Without the lane.
  void look_for_waiting_work();
  // No peer was found in time for what is queued. True: the QP is in the error state now. False: it
  // no longer waits, or what is queued is lost, and that was all.
  [[nodiscard]] bool retries_exhausted(std::uint32_t generation);

  // --- for the connection ---
  // Marks the QP as taken by a connection being set up.
  //   kBadState     not in INIT, or taken already
  //   kUnsupported  it is not a reliable one
  [[nodiscard]] Status reserve_for(ConnectionImpl& connection);
  // Set-up failed: the QP may be used again.
  void unreserve();
  // Takes over the transport in full operation.
  [[nodiscard]] Status attach(std::unique_ptr<io::Transport> transport,
                              const proto::StreamParams& params,
                              std::shared_ptr<ConnectionImpl> connection);
  void disconnect();
  void abort();
  [[nodiscard]] static QueuePairImpl& of(QueuePair& qp) { return static_cast<QueuePairImpl&>(qp); }
  [[nodiscard]] std::weak_ptr<QueuePair> handle() const { return handle_; }
  [[nodiscard]] proto::StreamId stream_id() const;
  // Octets of the ULPDUs sent at most; 0 before there is a stream. Any thread.
  [[nodiscard]] std::uint32_t max_ulpdu() const { return lane_.max_ulpdu(); }

  // Fails the stream.
  void cq_overflowed() override;
  [[nodiscard]] Lane& lane() noexcept { return lane_; }
  [[nodiscard]] const char* path() const noexcept { return lane_.path(); }

  // --- LaneOwner ---
  void turn_done() override;
  void lane_left() override;
  [[nodiscard]] std::shared_ptr<LaneOwner> hold() override { return weak_from_this().lock(); }

  void add_counters(Counters& sum) const override;

  // --- StreamHost: inside progress ---
  bool take_receive(proto::RecvWqe& out) override;
  void send_done(const proto::SendDone& done) override;
  void recv_done(const proto::RecvDone& done) override;
  void receive_cut_off(const proto::RecvWqe& wqe) override;
  WcStatus local_operation(proto::SendWqe& wqe) override;
  proto::Violation remote_invalidate(Stag stag) override;
  std::uint64_t execute_atomic(std::uint8_t* target, const AtomicRequest& request) override;
  proto::TxBatch* acquire_batch() override;
  void release_batch(proto::TxBatch* batch) override;
  std::uint8_t* acquire_carry(std::size_t size) override;
  void release_carry(std::uint8_t* carry, std::size_t size) override;
  void raise(AsyncEventType event) override;
  void log_violation(proto::Violation violation, TerminateCode code, bool by_peer) override;
  void first_fpdu() override;
  bool path_message(const proto::PathMessage& message) override {
    return lane_.on_path_message(message);
  }
  void stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) override;
  [[nodiscard]] Instant now() override;

 private:
  QueuePairImpl(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options,
                std::uint32_t number);
  [[nodiscard]] Status allocate(const QpOptions& options);
  void retire();  // the application has let go
  void unlink();
  [[nodiscard]] std::shared_ptr<Poller> poller() const;

  [[nodiscard]] Status modify_connected(QpState to);

  // qp_wired.cc
  void prepare_wiring();
  void tell_limits(proto::Stream& stream) const;
  [[nodiscard]] bool is_wired() const noexcept;
  [[nodiscard]] Status modify_wired(QpState to);
  [[nodiscard]] bool outlives_link(proto::StreamEnd how);
  // With the lane held.
  void note_waiting_work();
  void lose_work();

  // qp_post.cc. Error{}: none
  [[nodiscard]] Error may_post() const;
  [[nodiscard]] Error enqueue(const SendWr& wr);
  [[nodiscard]] Error fill(const SendWr& wr, proto::SendWqe& wqe);
  [[nodiscard]] Error fill_atomic(const SendWr& wr, proto::SendWqe& wqe);

  // With the lane held.
  void wake_who_waits_for_writes();
  // Without it.
  void tell_connection();

  // qp_host.cc; with the lane held
  void flush_receives();
  void flush_posted();
  void flush_unsent(WcStatus oldest);
  void flush_to_nowhere();

  const std::shared_ptr<ProtectionDomainImpl> pd_;
  DeviceImpl& device_;  // kept by pd_
  const std::uint32_t number_;
  void* const context_;
  const QpType type_;
  const bool signal_all_;
  std::shared_ptr<Wiring> wiring_;  // personality roce; set once
  QpCaps caps_{};
  std::weak_ptr<QueuePair> handle_;

  // Changed only by retire(), with the lane held: null from then on, completions go nowhere.
  std::shared_ptr<CompletionQueueImpl> send_cq_;
  std::shared_ptr<CompletionQueueImpl> recv_cq_;
  std::shared_ptr<SharedReceiveQueueImpl> srq_;

  std::atomic<QpState> state_{QpState::kInit};
  std::atomic<bool> reserved_{false};
  std::atomic<Access> remote_access_;
  std::atomic<bool> overflow_{false};  // a CQ overflowed

  io::SpinLock sq_lock_;  // producers of sq_
  proto::SendQueue sq_;
  io::SpinLock rq_lock_;  // producers of rq_
  proto::RecvQueue rq_;

  Lane lane_;

  // With the lane held.
  std::shared_ptr<ConnectionImpl> connection_;  // until the stream is down
  bool drain_event_due_ = false;
  bool retired_ = false;
  bool muted_ = false;        // completions go nowhere: RESET is under way
  bool work_failed_ = false;  // a request of this stream has failed or been flushed
  // The peer went in the middle of something: no other connection can carry what is queued, and a
  // receive may have been begun.
  bool stranded_ = false;
  std::uint8_t rnr_retry_ = 7;
  // A receive that was open when the connection went. An unreliable queue pair gives it to the next
  // message; a reliable one, which has no next connection then, flushes it with the others.
  struct CutOff {
    proto::RecvWqe wqe;
    Sge sges[limits::kSgesPerRequest];
  };
  std::unique_ptr<CutOff> cut_off_;
  std::uint32_t peer_psn_ = 0;    // that the peer of the connection expects first
  std::uint32_t generation_ = 0;  // how often it has been wired or reset
  std::uint64_t writes_seen_ = 0;

  // Reports that the connection has still to get. They are delivered without the lane held, because
  // the connection may release the last handle to this object in the call. In order, by one thread
  // at a time.
  struct Notices {
    std::shared_ptr<ConnectionImpl> connection;
    bool first_fpdu = false;
    bool down = false;
    proto::StreamEnd how = proto::StreamEnd::kOpen;
    TerminateCode code;
    bool by_peer = false;
    std::uint32_t generation = 0;  // of a wired QP
    bool outlived = false;         // which stays as it is
    bool stranded = false;         // with work that no connection can carry
  };
  io::SpinLock notices_lock_;
  Notices notices_ WEFT_GUARDED_BY(notices_lock_);
  bool telling_ WEFT_GUARDED_BY(notices_lock_) = false;
  std::atomic<bool> notices_due_{false};

  mutable io::SpinLock connection_lock_;
  std::weak_ptr<ConnectionImpl> last_connection_ WEFT_GUARDED_BY(connection_lock_);
  std::atomic<std::uint16_t> ird_{0}, ord_{0};
};

}  // namespace weft::verbs
