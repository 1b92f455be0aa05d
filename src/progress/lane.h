// A lane: one connection in full operation, {transport, stream, word, deadline}. The only place
// that touches the transport.
//
// No thread waits for a lane on the data path. A thread with something to do there takes the lane,
// or leaves the work in its word (word.h), which the holder can't miss. Control (modify,
// disconnect, a time limit) waits, by a futex. A lane belongs to one shard, which finds out when
// there is something to do; its descriptor is registered there, changed and removed with the lane
// held.
//
// Lock order: a shard's, a lane's, then the queue locks, rings, pools and tables.
#pragma once

#include <weft/counters.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>

#include "io/engine.h"
#include "io/transport.h"
#include "os/clock.h"
#include "progress/collected_posts.h"
#include "progress/host.h"
#include "progress/lane_stream.h"
#include "progress/left_ack.h"
#include "progress/path_change.h"
#include "progress/shard.h"
#include "progress/word.h"
#include "proto/stream.h"
#include "proto/work.h"
#include "trace/pcap.h"

namespace weft::progress {

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

// The outcome of a turn, as a set.
struct Turn {
  bool received = false;
  bool sent = false;
  bool more = false;  // it stopped to let other lanes run: there is more to do
  bool busy = false;  // another thread holds the lane
  [[nodiscard]] bool anything() const noexcept { return received || sent || more || busy; }
};

// Since when a peer has not taken what was given to its transport. The holder's; any thread asks.
class Stalled {
 public:
  void note(bool stalled) noexcept {
    if (since().is_never() != stalled) return;
    since_.store(stalled ? os::now().ns : Instant::never().ns, std::memory_order_relaxed);
  }
  [[nodiscard]] Instant since() const noexcept {
    return Instant{since_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::int64_t> since_{Instant::never().ns};
};

class Lane final : public io::Handler {
 public:
  Lane(LaneOwner& owner, ProgressHost& host, proto::SendQueue& sq) noexcept
      : owner_(owner), host_(host), settings_(host.settings()), sq_(sq), posts_(sq) {}
  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // --- life ---

  // Its shard, for life. Once, before all below.
  void belong_to(std::shared_ptr<Shard> shard) noexcept {
    assert(shard_ == nullptr && shard != nullptr);
    shard_ = std::move(shard);
  }
  [[nodiscard]] Shard& shard() const noexcept {
    assert(shard_ != nullptr);
    return *shard_;
  }
  // Full operation begins. With the lane held. On failure the stream has been aborted.
  //   kSystem   no room in the shard's epoll
  [[nodiscard]] Status open(std::unique_ptr<io::Transport> transport,
                            std::unique_ptr<trace::Trace> trace, const proto::StreamParams& params,
                            Access remote_access);
  // Its queue pair is gone, and nobody polls for it: an orderly end under way is the background's.
  void close_in_background();
  // No timer of this lane runs any more. Before the owner is taken apart; without the lane.
  void stop();

  // --- any thread ---

  // A request has been posted: sends it, or leaves it to the shard's next pass.
  void ring_doorbell();
  // Sends what has been posted, now, or leaves it to the holder.
  void send_now();
  // A receive has been posted: a Send waited for it.
  void receive_posted();
  // The process exits: sends what waits.
  void send_at_exit();
  // Does `work` with the lane held, as if it were a turn. Waits for the holder. Never in a turn.
  // An exception of `work` goes on to the caller when the lane has been left.
  template <class Work>
  void exclusively(Work&& work) {
    take();
    try {
      work();
    } catch (...) {
      end_control();
      throw;
    }
    end_control();
  }
  // Ends the connection if its peer's host has been silent for too long.
  void check_peer(Instant now);
  // Since when its peer has not taken what was given to the transport, while a batch is held for
  // it; never: it has.
  [[nodiscard]] Instant stalled_since() const noexcept { return stalled_.since(); }
  // Ends the connection for the sake of those that wait for a batch.
  void end_stalled();

  // The transport is open.
  [[nodiscard]] bool live() const noexcept { return live_.load(std::memory_order_acquire); }
  [[nodiscard]] bool blocked() const noexcept {
    return tx_.blocked.load(std::memory_order_relaxed);
  }
  // A Send waits for a receive to be posted. A look that comes too early costs a millisecond.
  [[nodiscard]] bool awaits_receive() const noexcept {
    return awaits_receive_.load(std::memory_order_relaxed);
  }
  // See Transport. A look at such a lane is cheaper than asking epoll.
  [[nodiscard]] bool cheap_to_look_at() const noexcept {
    return cheap_.load(std::memory_order_relaxed);
  }
  // In a pass: a post waits, and nothing has been received for some turns.
  [[nodiscard]] bool only_sends() const noexcept {
    return (word_.load(std::memory_order_acquire) & kNews) == kPosted && looks_.idle > 1;
  }
  // A post waits for the shard's next pass.
  [[nodiscard]] bool post_waits() const noexcept {
    return (word_.load(std::memory_order_acquire) & kPosted) != 0;
  }
  [[nodiscard]] std::uint32_t max_ulpdu() const { return stream_.max_ulpdu(); }
  [[nodiscard]] CollectedPosts& posts() noexcept { return posts_; }
  void add_counters(Counters& sum) const;
  // "tcp" or "ring": what carries both directions now.
  [[nodiscard]] const char* path() const noexcept {
    return path_name_.load(std::memory_order_relaxed);
  }

  // --- with the lane held ---

  [[nodiscard]] proto::Stream* stream() noexcept { return stream_ ? &*stream_ : nullptr; }
  [[nodiscard]] io::Transport* transport() noexcept { return transport_.get(); }
  // Sends until the transport has no room or about `most` bytes are sent (0: the share of a turn),
  // so that other lanes get their turn. A rest is left to the shard, and counts as blocked until
  // its next turn. True: something was sent.
  bool transmit(std::uint64_t most = 0);
  // Beside other lanes of the shard, and alone: there it only delays the caller and other shards.
  // With less than this in the socket, a busy machine that takes our core starves the peer.
  static constexpr std::uint64_t kSentPerTurn = 512U << 10U;
  static constexpr std::uint64_t kSentPerTurnAlone = 2U << 20U;
  // Before what is not sent is given up: more than a socket takes without its peer's help.
  static constexpr std::uint64_t kSentAtEnd = 8U << 20U;
  // The Ack that waits for an answer (leaves_ack()) goes now, and no work request with it. Before
  // the connection is given up: the peer's completion depends on it.
  void send_left_ack();
  // Receives what is there and sends what can be sent. What it leaves is left to the shard.
  void look();

  // See StreamHost::path_message().
  [[nodiscard]] bool on_path_message(const proto::PathMessage& message) {
    return path_ && path_->on_message(message);
  }

  // --- for the shard ---

  // In a pass, with the shard held: the lane has just been unlinked, and gets its turn.
  // `patient`: the caller looks again soon, so an active lane stays in the list.
  Turn run(bool patient);
  // Epoll has reported this of its socket; 0: of its bell. With the shard held.
  void reported(std::uint32_t events);
  // Linked, or held by somebody.
  [[nodiscard]] bool is_referred_to() const noexcept {
    const Word w = word_.load(std::memory_order_acquire);
    return (w & kInList) != 0 || state_of(w) == kRunning;
  }
  Lane* next_in_list = nullptr;  // the shard's
  Shard::Place place_in_table;   // likewise

  void on_timer(io::TimerId id) override;

 private:
  // lane.cc: who has the lane
  template <class StepOf>
  Next apply(StepOf step, Word* before = nullptr) noexcept;
  void take();
  void leave(bool by_holder = false, Word to = kAsleep);
  [[nodiscard]] bool end(Word to, bool by_holder);
  [[nodiscard]] bool is_quiet();
  [[nodiscard]] std::uint32_t idle_looks() const noexcept;
  void end_control();
  void signal(Word news, bool by_holder);
  [[nodiscard]] bool try_take() noexcept;
  [[nodiscard]] bool is_held() const noexcept {
    return state_of(word_.load(std::memory_order_relaxed)) == kRunning;
  }
  [[nodiscard]] Word where_it_goes(const Turn& turn, bool patient);
  void set_attended(bool attended);
  void settle_up();

  // lane_turn.cc
  Turn turn(Word news);
  [[nodiscard]] bool is_at_rest() const;
  Turn receive(bool until_end);
  void send_posted();
  bool send_batch(proto::TxBatch& batch);
  void without_batch();
  [[nodiscard]] bool waits_for_acks() const;
  void update_events();
  void update_deadline(Instant next);
  void step_path();
  void close_transport();

  // lane_post.cc
  [[nodiscard]] bool may_leave_post();
  [[nodiscard]] bool leaves_ack();

  [[nodiscard]] std::weak_ptr<io::Handler> as_handler();  // of which the owner is kept

  LaneOwner& owner_;
  ProgressHost& host_;
  const Config& settings_;
  proto::SendQueue& sq_;
  std::shared_ptr<Shard> shard_;

  std::atomic<Word> word_{kClosed};
  std::atomic<bool> live_{false};

  CollectedPosts posts_;
  LeftAck ack_;

  // With the lane held, as far as it is not atomic. What is, the holder writes.
  std::unique_ptr<io::Transport> transport_;
  LaneStream stream_;
  std::optional<PathChange> path_;  // of a connection inside this machine
  std::atomic<const char*> path_name_{"tcp"};
  std::atomic<bool> cheap_{false};
  std::unique_ptr<trace::Trace> trace_;
  std::atomic<bool> awaits_receive_{false};
  Stalled stalled_;
  struct Tx {
    // As if there were no room, except that there is some: the lane is left ready, and its next
    // turn goes on. Requests that are posted meanwhile wait behind the rest.
    void leave_rest() noexcept {
      rest = true;
      blocked.store(true, std::memory_order_relaxed);
    }
    std::atomic<bool> blocked{false};
    bool rest = false;         // the last transmit() stopped although there was room
    bool no_memory = false;    // there is none for sending: in the kernel, or no batch
    std::uint32_t events = 0;  // registered
  };
  Tx tx_;
  struct Rx {
    bool ended = false;
    bool end_reported = false;  // by epoll
    bool more = false;          // the last receive() stopped although there was more
  };
  Rx rx_;
  // Somebody looks at each pass; how the shard counts that.
  struct Looks {
    bool attended = false, costly = false, blocked = false;
    bool told = false;       // the peer, that nobody looks; and nothing was received since
    std::uint32_t idle = 0;  // in a row, that received nothing
  };
  Looks looks_;
  struct Timers {
    io::TimerId deadline = 0;
    Instant at = Instant::never();
    io::TimerId retry = 0;
  };
  Timers timers_;
  // Liveness of the peer's host, by the sweep.
  struct PeerSeen {
    bool probed = false;
    std::uint64_t acknowledged = 0;
    Instant busy_since = Instant::never();
  };
  PeerSeen peer_;

  struct Calls {
    proto::Counter tx, rx, rx_empty, tx_blocked;
  };
  Calls calls_;
};

template <class StepOf>
Next Lane::apply(StepOf step, Word* before) noexcept {
  Word word = word_.load(std::memory_order_relaxed);
  while (true) {
    const Step to = step(word);
    assert(is_sound(to.word));
    // Also where the word stays as it is: the read-modify-write puts this step and those of others
    // in one order.
    if (word_.compare_exchange_weak(word, to.word, std::memory_order_seq_cst,
                                    std::memory_order_relaxed)) {
      if (before != nullptr) *before = word;
      return to.next;
    }
  }
}

}  // namespace weft::progress
