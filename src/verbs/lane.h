// A lane: one connection in full operation, {transport, stream, lock word, deadline}. The only
// place that touches the transport.
//
// No thread waits for a lane on the data path. A thread that wants bytes moved enters the lane, or
// leaves a kick that the holder can't miss. A lane belongs to one poller, which finds out when
// there is something to do; its descriptor is registered there, changed and removed with the lane
// held, so a descriptor number that is used again never meets a registration of the connection
// before.
//
// Lock order: a poller's, a lane's, then the queue locks, rings, pools and tables.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "io/engine.h"
#include "io/kick_lock.h"
#include "io/ticks.h"
#include "io/transport.h"
#include "proto/stream.h"
#include "proto/work.h"
#include "trace/pcap.h"
#include "verbs/device.h"
#include "verbs/path_change.h"

namespace weft::verbs {

class Poller;

// The owner of a lane: a queue pair.
class LaneOwner : public proto::StreamHost {
 public:
  // Behind every turn, with the lane held: what else follows from what has happened.
  virtual void turn_done() = 0;
  // The lane has just been left: what may not be done while it is held.
  virtual void lane_left() = 0;
  // A share in its life; null when it is being destroyed.
  [[nodiscard]] virtual std::shared_ptr<LaneOwner> hold() = 0;
};

// What a turn came to, as a set.
struct Turn {
  bool received = false;
  bool sent = false;
  bool more = false;  // it stopped to let other lanes run: there is more to do
  bool busy = false;  // another thread holds the lane, and may have finished reading
  [[nodiscard]] bool anything() const noexcept { return received || sent || more || busy; }
};

class Lane final : public io::Handler {
 public:
  Lane(LaneOwner& owner, DeviceImpl& device, proto::SendQueue& sq) noexcept
      : owner_(owner), device_(device), sq_(sq) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // --- life; with the lane held ---

  // Full operation begins. On failure the stream has been aborted.
  //   kSystem   no room in the poller's epoll
  [[nodiscard]] Status open(std::unique_ptr<io::Transport> transport,
                            std::unique_ptr<trace::Trace> trace, const proto::StreamParams& params,
                            Access remote_access, std::shared_ptr<Poller> poller);
  // Goes to another poller.
  void move_to(std::shared_ptr<Poller> poller);
  // No timer of this lane runs any more. Before the owner is taken apart; without the lane.
  void stop();

  // --- any thread ---

  // Receives what is there and sends what can be sent. `events`: what epoll reported; 0: unknown.
  Turn run(std::uint32_t events);
  // As run(0), at a fraction of the cost where the transport is cheap to look at and nothing has
  // come. For who looks again and again; what only turn_done() sees waits for the next run().
  Turn glance();
  // The same for who does not poll: what one turn leaves unread is reported to the poller.
  void look();
  // Sends what has been posted, now, or leaves it to the holder.
  void kick();
  // A request has been posted: sends it, or leaves the doorbell to the next look of a poller.
  void ring();
  // The process exits: sends what a turn has left.
  void send_rest();
  // Does `work` with the lane held, as if it were a turn. Waits for the holder.
  template <class Work>
  void exclusively(Work&& work) {
    lock_.enter();
    work();
    leave();
  }
  // Ends the connection if its peer's host has been silent for too long.
  void check_peer(Instant now);
  // Since when its peer has not taken what was given to the transport, while a batch is held for
  // it; never: it has.
  [[nodiscard]] Instant stalled_since() const noexcept {
    return Instant{stalled_since_.load(std::memory_order_relaxed)};
  }
  // Ends the connection for the sake of those that wait for a batch.
  void end_stalled();

  // The transport is open.
  [[nodiscard]] bool live() const noexcept { return live_.load(std::memory_order_acquire); }
  [[nodiscard]] bool blocked() const noexcept {
    return tx_blocked_.load(std::memory_order_relaxed);
  }
  // A Send waits for a receive to be posted. A look that comes too early costs a millisecond.
  [[nodiscard]] bool awaits_receive() const noexcept {
    return awaits_receive_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] Poller* poller() const noexcept { return poller_.load(std::memory_order_acquire); }
  // See Transport. A look at such a lane is cheaper than asking epoll.
  [[nodiscard]] bool cheap_to_look_at() const noexcept {
    return cheap_.load(std::memory_order_relaxed);
  }
  // A doorbell waits for the poller's next look.
  [[nodiscard]] bool doorbell_waits() const noexcept {
    return deferred_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint32_t max_ulpdu() const;  // 0 before there is a stream
  // Octets in the send queue that no doorbell has covered yet. The poster's, under its lock.
  void note_posted(std::uint64_t bytes) noexcept {
    unflushed_bytes_.store(unflushed_bytes_.load(std::memory_order_relaxed) + bytes,
                           std::memory_order_relaxed);
  }
  void add_counters(Counters& sum) const;
  // "tcp" or "ring": what carries both directions now.
  [[nodiscard]] const char* path() const noexcept {
    return path_name_.load(std::memory_order_relaxed);
  }

  // --- with the lane held ---

  [[nodiscard]] proto::Stream* stream() noexcept { return stream_ ? &*stream_ : nullptr; }
  // Sends until the transport has no room or about `most` bytes are sent (0: the share of a turn),
  // so that other lanes get their turn. The poller is told of a rest, which counts as blocked until
  // its next turn.
  void transmit(std::uint64_t most = 0);
  // Beside other lanes of the poller, and alone: there it only delays the caller and other pollers.
  // With less than this in the socket, a busy machine that takes our core starves the peer.
  static constexpr std::uint64_t kSentPerTurn = 512U << 10U;
  static constexpr std::uint64_t kSentPerTurnAlone = 2U << 20U;
  // Before what is not sent is given up: more than a socket takes without its peer's help.
  static constexpr std::uint64_t kSentAtEnd = 8U << 20U;
  // The Ack that waits for an answer (leaves_ack()) goes now, and no work request with it. Before
  // the connection is given up: the peer's completion depends on it.
  void send_left_ack();
  // As look(), inside exclusively().
  void look_alone();
  // What the transport has is reported by epoll once more.
  void report_anew();
  // Asks for a look at the deadline, the end, the registration. Part of every leave.
  void settle_up();

  // See StreamHost::path_message().
  [[nodiscard]] bool on_path_message(const proto::PathMessage& message) {
    return path_ && path_->on_message(message);
  }

  // --- for the poller, with the lane held ---
  [[nodiscard]] io::Transport* transport() noexcept { return transport_.get(); }
  std::atomic<std::uint64_t> token{0};  // of the registration

  // --- for the poller, with the poller held ---
  // Nobody looks any more before the descriptor says so. True: look once more.
  [[nodiscard]] bool settle();
  // Somebody looks from now on. False: another thread has the lane just now; again later.
  [[nodiscard]] bool attend();

  void on_timer(io::TimerId id) override;

 private:
  Turn turn(std::uint32_t events);
  [[nodiscard]] bool is_at_rest() const;
  void leave_unchanged() WEFT_RELEASE(lock_) WEFT_NOT_ANALYZED;
  void leave() WEFT_RELEASE(lock_) WEFT_NOT_ANALYZED;  // takes it up again for a kick
  void send_posted();
  Turn receive(bool until_end);
  bool transmit_counted(std::uint64_t most = 0);
  void leave_rest();
  bool send_batch(proto::TxBatch& batch);
  void note_stalled(bool stalled);
  void without_batch();
  void note_flush();
  void note_released();
  void note_acknowledged();
  [[nodiscard]] bool waits_for_acks() const;
  [[nodiscard]] bool may_defer(Poller& poller);
  [[nodiscard]] bool leaves_ack();
  void note_answer(const Poller& poller);
  [[nodiscard]] bool room_to_collect() const noexcept;
  void transport_error(int error);
  void update_events();
  void update_deadline();
  void step_path();
  void follow_transport();
  void trace_path();
  [[nodiscard]] Instant next_deadline() const;
  void close_transport();
  [[nodiscard]] std::weak_ptr<io::Handler> as_handler();  // of which the owner is kept

  LaneOwner& owner_;
  DeviceImpl& device_;
  proto::SendQueue& sq_;

  io::KickLock lock_;
  std::atomic<bool> live_{false};
  std::atomic<Poller*> poller_{nullptr};
  std::shared_ptr<Poller> poller_kept_;  // the same, with the lane held
  io::Engine* home_ = nullptr;           // of the first poller: keeps the time limits

  // Doorbells.
  std::atomic<bool> deferred_{false};
  std::atomic<bool> streaming_{false};  // the last flush carried many requests
  std::atomic<std::uint64_t> unflushed_bytes_{0};
  std::atomic<std::uint64_t> polls_at_flush_{0};    // of the poller
  std::atomic<std::uint64_t> received_at_post_{0};  // rx_calls_; a race costs one batch, no more
  std::uint32_t flushed_tail_ = 0;                  // of sq_, at the last flush
  // Acks that leave with the answer, see leaves_ack(). A race costs a system call, no more.
  std::atomic<bool> ack_left_{false};
  std::atomic<std::uint64_t> look_at_ack_{0};  // Poller::last_drive() when one was due; 0: answered
  std::atomic<std::uint32_t> answers_{0};      // posted at once, up to kAnswersMax

  // With the lane held.
  std::unique_ptr<io::Transport> transport_;
  std::optional<proto::Stream> stream_;
  std::optional<PathChange> path_;  // of a connection inside this machine
  std::atomic<const char*> path_name_{"tcp"};
  std::atomic<bool> cheap_{false};  // written by the holder
  std::atomic<bool> has_stream_{false};
  std::unique_ptr<trace::Trace> trace_;
  std::atomic<bool> tx_blocked_{false};  // written by the holder
  bool rest_left_ = false;               // the last transmit() stopped although there was room
  bool rest_told_ = false;               // ... and somebody comes for the rest
  // Room was reported and not used yet, perhaps since somebody else was at it.
  std::atomic<bool> room_{false};
  // Epoll has reported the socket beside a ring; perhaps while somebody else was at it.
  std::atomic<bool> socket_reported_{false};
  std::atomic<bool> awaits_receive_{false};  // written by the holder
  bool rx_ended_ = false;
  bool end_reported_ = false;  // by epoll
  std::uint32_t events_ = 0;   // registered
  io::TimerId timer_ = 0;
  Instant timer_at_ = Instant::never();
  io::TimerId retry_timer_ = 0;
  bool no_memory_ = false;  // there is none for sending: in the kernel, or no batch
  std::atomic<std::int64_t> stalled_since_{Instant::never().ns};  // written by the holder
  std::shared_ptr<LaneOwner> parted_;  // what the poller kept alive; let go without the lane

  // Liveness of the peer's host, by the sweep.
  std::uint64_t acked_seen_ = 0;
  Instant busy_since_ = Instant::never();

  proto::Counter tx_calls_, rx_calls_, rx_empty_, tx_blocked_calls_;
  mutable io::SpinLock sight_lock_;
  Counters past_ WEFT_GUARDED_BY(sight_lock_);  // of streams before this one
};

}  // namespace weft::verbs
