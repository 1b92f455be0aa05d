// A queue pair: queues to post to, a stream that carries them out, a socket under it.
//
// Whoever needs progress makes it: a caller who polls or waits, a caller who posts, the background
// thread. They exclude each other by `progress_lock_`, which is tried, not waited for: the loser
// leaves `kick_` for the holder, who looks again before it is done.
//
// Lock order: foster_lock_ > a CQ's drive_lock_ > progress_lock_ > sq_lock_, rq_lock_, the CQ's
// ring lock, pools.
#pragma once

#include <weft/queue_pair.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "io/engine.h"
#include "io/fd.h"
#include "io/pcap.h"
#include "proto/stream.h"
#include "proto/work.h"
#include "verbs/device.h"
#include "verbs/spin_lock.h"

namespace weft::verbs {

class CompletionQueueImpl;
class ConnectionImpl;
class ProtectionDomainImpl;
class SharedReceiveQueueImpl;

class QueuePairImpl final : public QueuePair,
                            public proto::StreamHost,
                            public io::Handler,
                            public CounterSource,
                            public std::enable_shared_from_this<QueuePairImpl> {
 public:
  // What the application holds: when it lets go, the QP is retired, but an orderly end under way
  // (FIN, Terminate) is still carried out.
  [[nodiscard]] static Result<std::shared_ptr<QueuePair>> create(
      std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options);
  ~QueuePairImpl() override;

  // --- QueuePair ---
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

  // --- for the connection ---
  // Marks the QP as taken by a connection being set up.
  //   kBadState   not in INIT, or taken already
  [[nodiscard]] Status reserve_for(ConnectionImpl& connection);
  // Set-up failed: the QP may be used again.
  void unreserve();
  // Takes over the socket in full operation. `surplus`: octets that came behind the start-up frame.
  [[nodiscard]] Status attach(io::Fd socket, const proto::StreamParams& params,
                              std::span<const std::uint8_t> surplus,
                              std::shared_ptr<ConnectionImpl> connection);
  void disconnect();
  void abort();
  [[nodiscard]] static QueuePairImpl& of(QueuePair& qp) { return static_cast<QueuePairImpl&>(qp); }
  [[nodiscard]] std::weak_ptr<QueuePair> handle() const { return handle_; }
  [[nodiscard]] proto::StreamId stream_id() const;
  // Octets of the ULPDUs sent at most; 0 before there is a stream. Any thread.
  [[nodiscard]] std::uint32_t max_ulpdu() const {
    return has_stream_.load(std::memory_order_acquire) ? stream_->max_ulpdu() : 0;
  }

  // --- for CQs, channels and the background thread ---
  // Moves what can be moved now. False: nothing was there. True: look again before sleeping, since
  // something moved, or somebody else is at it.
  bool progress();
  // Fails the stream because a CQ overflowed.
  void cq_overflowed();
  // The background thread leaves this QP to callers, or takes it back.
  void adopt();
  void release();
  // A doorbell that was collected rings, if nothing else has rung it meanwhile.
  void ring_collected();
  [[nodiscard]] bool adopted() const { return adopted_.load(std::memory_order_acquire); }
  // What the background thread finds at a tick, about a QP that is adopted or waits for something
  // no descriptor reports.
  enum class Tick : std::uint8_t {
    kBusy,    // driven since the last tick
    kIdle,    // not driven, but still watched
    kAsleep,  // under a sleeper that wakes by itself
    kDone,    // taken back, or over: nothing to watch
  };
  [[nodiscard]] Tick tick();
  [[nodiscard]] bool live() const { return live_.load(std::memory_order_acquire); }
  [[nodiscard]] int socket() const { return socket_.get(); }

  // --- io::Handler: the background thread ---
  void on_io(std::uint32_t events) override;
  void on_timer(io::TimerId id) override;

  void add_counters(Counters& sum) const override;

  // --- StreamHost: inside progress ---
  bool take_receive(proto::RecvWqe& out) override;
  void send_done(const proto::SendDone& done) override;
  void recv_done(const proto::RecvDone& done) override;
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
  void stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) override;
  [[nodiscard]] Instant now() override;

 private:
  QueuePairImpl(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options,
                std::uint32_t number);
  [[nodiscard]] Status allocate(const QpOptions& options);
  void retire();  // the application has let go
  void leave_foster();

  // qp_post.cc. Error{}: none
  [[nodiscard]] Error may_post() const;
  [[nodiscard]] Error enqueue(const SendWr& wr);
  [[nodiscard]] Error fill(const SendWr& wr, proto::SendWqe& wqe);
  [[nodiscard]] Error fill_payload(const SendWr& wr, proto::SendWqe& wqe);
  [[nodiscard]] Error fill_atomic(const SendWr& wr, proto::SendWqe& wqe);
  [[nodiscard]] bool may_defer();
  [[nodiscard]] bool has_poller() const;
  [[nodiscard]] bool polled_since_flush() const;
  [[nodiscard]] bool room_to_collect() const;

  // qp_progress.cc; all but exclusively() and settle() under progress_lock_
  template <class Work>
  void exclusively(Work&& work);
  void settle();  // gives progress_lock_ up, looks after kicks, tells the connection
  void tell_connection();
  enum class Turn : std::uint8_t {
    kIdle,   // nothing there, nothing changed
    kTried,  // nothing moved, but something may have changed
    kMoved,  // there is, or may be, more to do
  };
  Turn run(bool until_end);
  bool receive(bool until_end);
  bool transmit();
  bool send_batch(proto::TxBatch& batch);
  void transport_error(int error);
  void note_acknowledged();
  void epilogue();
  void close_socket();
  [[nodiscard]] bool waits_for_acks() const;
  [[nodiscard]] std::array<std::shared_ptr<CompletionQueueImpl>, 2> cqs();
  [[nodiscard]] std::optional<bool> under_sleeper();
  void expect_no_sleeper();
  void hand_over(CompletionQueueImpl& send_cq, CompletionQueueImpl& recv_cq);
  void wake_who_waits_for_writes();
  void kick();
  void be_watched();

  // qp_host.cc; under progress_lock_
  void flush_receives();
  void flush_posted();
  void flush_to_nowhere();

  const std::shared_ptr<ProtectionDomainImpl> pd_;
  DeviceImpl& device_;  // kept by pd_
  const std::uint32_t number_;
  void* const context_;
  const bool signal_all_;
  QpCaps caps_{};
  std::weak_ptr<QueuePair> handle_;

  // Changed only by retire(), under progress_lock_: null from then on, completions go nowhere.
  std::shared_ptr<CompletionQueueImpl> send_cq_;
  std::shared_ptr<CompletionQueueImpl> recv_cq_;
  std::shared_ptr<SharedReceiveQueueImpl> srq_;

  std::atomic<QpState> state_{QpState::kInit};
  std::atomic<bool> reserved_{false};
  std::atomic<Access> remote_access_;

  SpinLock sq_lock_;  // producers of sq_
  proto::SendQueue sq_;
  std::atomic<std::uint64_t> unflushed_bytes_{0};
  SpinLock rq_lock_;  // producers of rq_
  proto::RecvQueue rq_;

  SpinLock progress_lock_;
  std::atomic<bool> kick_{false};
  std::atomic<bool> live_{false};      // a stream is attached and its socket open
  SpinLock adoption_lock_;             // changes of adopted_, with the epoll that goes with it
  std::atomic<bool> adopted_{false};   // callers drive; the background thread's epoll is disarmed
  std::atomic<bool> watched_{false};   // in the ticker's list
  std::atomic<bool> deferred_{false};  // a doorbell waits for the next poll or tick
  std::atomic<bool> overflow_{false};  // a CQ overflowed
  std::atomic<std::uint32_t> driven_{0};      // times a caller drove it
  std::atomic<std::uint64_t> last_flush_{0};  // cpu_ticks()
  std::atomic<std::uint32_t> driven_at_flush_{0};
  std::atomic<std::uint64_t> polls_at_flush_{0};  // of send_cq_
  std::atomic<bool> polled_between_flushes_{false};
  std::atomic<bool> streaming_{false};  // the last flush carried many requests
  std::uint32_t driven_seen_ = 0;       // the background thread's

  // A CQ that drives this QP though it does not deliver there. Lock before its drive_lock_.
  SpinLock foster_lock_;  // guards the next two
  std::weak_ptr<CompletionQueueImpl> foster_;
  bool over_ = false;  // retired: no new foster

  // Under progress_lock_.
  io::Fd socket_;
  std::optional<proto::Stream> stream_;
  std::atomic<bool> has_stream_{false};
  std::unique_ptr<io::Trace> trace_;
  std::shared_ptr<ConnectionImpl> connection_;  // until the stream is down
  bool tx_blocked_ = false;
  std::uint32_t flushed_tail_ = 0;  // of sq_, at the last flush
  bool drain_event_due_ = false;
  bool retired_ = false;
  std::uint64_t writes_seen_ = 0;
  io::TimerId timer_ = 0;
  Instant timer_at_ = Instant::never();
  proto::Counter tx_calls_, rx_calls_, rx_empty_, tx_blocked_calls_;
  std::shared_ptr<QueuePairImpl> self_;            // while the engine knows us
  std::shared_ptr<QueuePairImpl> done_with_self_;  // to be let go without the lock

  // What the connection has still to be told. Told without progress_lock_: a connection may let go
  // of the last handle to us while it listens. In order, by one thread at a time.
  struct News {
    std::shared_ptr<ConnectionImpl> connection;
    bool first_fpdu = false;
    bool down = false;
    proto::StreamEnd how = proto::StreamEnd::kOpen;
    TerminateCode code;
    bool by_peer = false;
  };
  SpinLock news_lock_;
  News news_;
  std::atomic<bool> news_due_{false};
  bool telling_ = false;

  mutable SpinLock connection_lock_;
  std::weak_ptr<ConnectionImpl> last_connection_;
  std::atomic<std::uint16_t> ird_{0}, ord_{0};
};

}  // namespace weft::verbs
