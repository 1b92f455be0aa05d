// A queue pair: work queues to post to, states, and what the stream on its lane asks of them.
//
// The bytes are the lane's business (lane.h). What is done here between posts and completions runs
// with the lane held.
//
// Lock order: the lane's, then those of the work queues, the CQ's ring lock, pools.
#pragma once

#include <weft/limits.h>
#include <weft/queue_pair.h>

#include <atomic>
#include <memory>
#include <optional>

#include "io/transport.h"
#include "os/lock.h"
#include "progress/lane.h"
#include "proto/stream.h"
#include "proto/work.h"
#include "trace/pcap.h"
#include "verbs/cq_user.h"
#include "verbs/device.h"
#include "verbs/held.h"
#include "verbs/oob/wiring.h"
#include "verbs/qp_host.h"
#include "verbs/qp_notices.h"
#include "verbs/qp_of_domain.h"

namespace weft::verbs {

class QpConnection;

class QueuePairImpl final : public QueuePair,
                            public CqUser,
                            public WiredHost,
                            public QpHost,
                            public CounterSource,
                            public std::enable_shared_from_this<QueuePairImpl> {
 public:
  // The handle that the application holds: when it lets go, the QP is retired, but an orderly end
  // under way (FIN, Terminate) is still carried out.
  [[nodiscard]] static Result<std::shared_ptr<QueuePair>> create(
      std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options);
  ~QueuePairImpl() override;

  // --- QueuePair ---
  [[nodiscard]] QpType type() const override { return type_; }
  [[nodiscard]] std::uint32_t number() const override { return number_.value(); }
  [[nodiscard]] QpState state() const override { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] QpCaps caps() const override { return queues_.caps(); }
  [[nodiscard]] QpAttributes query() const override;
  [[nodiscard]] void* context() const override { return context_; }
  [[nodiscard]] std::shared_ptr<Connection> connection() const override;
  Posted post_send(std::span<const SendWr> wrs) override;
  Posted post_recv(std::span<const RecvWr> wrs) override;
  [[nodiscard]] Status queue_send(const SendWr& wr) override;
  void ring() override;
  [[nodiscard]] Status modify(QpState asked) override;
  void set_remote_access(Access access) override;
  [[nodiscard]] Status set_datagram_key(std::uint32_t /*key*/) override {
    return fail(Error::kUnsupported);
  }
  [[nodiscard]] Status wire(const WiringToReceive& attributes) override;
  [[nodiscard]] Status start_sending(const WiringToSend& attributes) override;

  // --- WiredHost: oob/wired_qp.cc ---
  [[nodiscard]] Status link(std::unique_ptr<io::Transport> transport,
                            std::unique_ptr<trace::Trace> trace, const proto::StreamParams& params,
                            std::uint32_t generation, std::uint32_t peer_psn) override;
  void look_for_waiting_work() override;
  [[nodiscard]] bool retries_exhausted(std::uint32_t generation) override;

  // --- for the connection ---
  // Marks the QP as taken by a connection being set up.
  //   kBadState     not in INIT, or taken already
  //   kUnsupported  it is not a reliable one
  [[nodiscard]] Status reserve_for(std::weak_ptr<QpConnection> connection);
  // Set-up failed: the QP may be used again.
  void unreserve();
  // Takes over the transport in full operation.
  [[nodiscard]] Status attach(std::unique_ptr<io::Transport> transport,
                              const proto::StreamParams& params,
                              std::shared_ptr<QpConnection> connection);
  void disconnect();
  void abort();
  [[nodiscard]] static QueuePairImpl& of(QueuePair& qp) { return static_cast<QueuePairImpl&>(qp); }
  [[nodiscard]] std::weak_ptr<QueuePair> handle() const { return handle_; }
  // Octets of the ULPDUs sent at most; 0 before there is a stream. Any thread.
  [[nodiscard]] std::uint32_t max_ulpdu() const { return lane_.max_ulpdu(); }

  // Fails the stream.
  void cq_overflowed() override;
  [[nodiscard]] progress::Lane& lane() noexcept { return lane_; }
  [[nodiscard]] const char* path() const noexcept { return lane_.path(); }

  // --- LaneOwner ---
  void turn_done() override;
  void lane_left() override;
  [[nodiscard]] std::shared_ptr<progress::LaneOwner> hold() override {
    return weak_from_this().lock();
  }

  void add_counters(Counters& sum) const override;

  // --- StreamHost, what QpHost leaves open: inside progress ---
  void raise(AsyncEventType event) override;
  void log_violation(proto::Violation violation, TerminateCode code, bool by_peer) override;
  void first_fpdu() override;
  bool path_message(const proto::PathMessage& message) override {
    return lane_.on_path_message(message);
  }
  void stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) override;

 private:
  QueuePairImpl(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options,
                ObjectCount counted, Number number);
  void retire();  // the application has let go
  void unlink();

  // With the lane held. What a program asks for, see qp_moves.h.
  [[nodiscard]] Status move(QpState asked);
  [[nodiscard]] Status end();
  [[nodiscard]] Status drain();

  // oob/wired_qp.cc
  void prepare_wiring();
  void tell_limits(proto::Stream& stream) const;
  [[nodiscard]] bool is_wired() const noexcept;
  [[nodiscard]] Status reset_wired();
  [[nodiscard]] Status end_wired();
  [[nodiscard]] bool outlives_link(proto::StreamEnd how);
  // With the lane held.
  void note_waiting_work();

  // qp_post.cc. Error{}: none
  [[nodiscard]] Error may_post() const;
  [[nodiscard]] Error enqueue(const SendWr& wr);
  [[nodiscard]] Error fill(const SendWr& wr, proto::SendWqe& wqe);
  [[nodiscard]] Error fill_atomic(const SendWr& wr, proto::SendWqe& wqe);

  // With the lane held.
  void wake_who_waits_for_writes();

  // qp_events.cc; with the lane held
  void tell_last_receive();
  void flush_posted();
  void flush_to_nowhere();

  // For a queue pair that the program wires by hand.
  struct Wired {
    std::shared_ptr<Wiring> wiring;  // personality roce; set once
    // The rest with the lane held.
    // The peer went in the middle of something: no other connection can carry what is queued, and a
    // receive may have been begun.
    bool stranded = false;
    std::uint8_t rnr_retry = 7;
    std::uint32_t peer_psn = 0;    // that the peer of the connection expects first
    std::uint32_t generation = 0;  // how often it has been wired or reset
  };

  const ObjectCount counted_;
  void* const context_;
  const QpType type_;
  Wired wired_;
  std::weak_ptr<QueuePair> handle_;
  std::optional<QpOfDomain> of_domain_;  // until retire()

  std::atomic<QpState> state_{QpState::kInit};
  std::atomic<bool> reserved_{false};
  std::atomic<Access> remote_access_;
  std::atomic<bool> overflow_{false};  // a CQ overflowed

  progress::Lane lane_;

  // With the lane held.
  std::shared_ptr<QpConnection> connection_;  // until the stream is down
  bool drain_event_due_ = false;
  bool retired_ = false;
  std::uint64_t writes_seen_ = 0;

  QpNotices notices_;

  mutable os::SpinLock connection_lock_;
  std::weak_ptr<QpConnection> last_connection_ WEFT_GUARDED_BY(connection_lock_);
  std::atomic<std::uint16_t> ird_{0}, ord_{0};
};

}  // namespace weft::verbs
