#include "verbs/lane.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/clock.h"
#include "io/log.h"
#include "io/path_transport.h"
#include "io/socket.h"
#include "verbs/poller.h"

namespace weft::verbs {

namespace {

constexpr std::size_t kScratchBytes = 256U << 10U;
static_assert(kScratchBytes >= proto::kScratchBytesMin);

// Reads of one turn: a fast peer must not keep the thread from others for long.
constexpr int kReadsPerTurn = 16;
// So many requests in one flush are a stream, see may_defer().
constexpr std::uint32_t kStreamOfPosts = 4;
// A doorbell may wait for the next poll if the last look was less than this ago.
constexpr std::uint64_t kDoorbellUs = 20;
// So much is collected of one connection before it is sent.
constexpr std::uint64_t kDoorbellBytes = 256U << 10U;
// While doorbells are being collected, one post in so many looks at the clock.
constexpr std::uint32_t kPostsPerLook = 4;
// An Ack waits for the program's answer if so many of the last ones have come at once.
constexpr std::uint32_t kAnswersToWait = 2;
constexpr std::uint32_t kAnswersMax = 4;
// How often TCP is asked what has been acknowledged (completions=acked), and whether it has memory
// again.
constexpr Duration kRetryPause{1'000'000};

// Where small FPDUs are staged: one buffer a thread, so that it stays in the cache.
std::span<std::uint8_t> scratch() {
  thread_local const std::unique_ptr<std::uint8_t[]> buffer(new std::uint8_t[kScratchBytes]);
  return {buffer.get(), kScratchBytes};
}

}  // namespace

// --- life ---

Status Lane::open(std::unique_ptr<io::Transport> transport, std::unique_ptr<trace::Trace> trace,
                  const proto::StreamParams& params, Access remote_access,
                  std::shared_ptr<Poller> poller) {
  home_ = &poller->home();
  transport_ = std::move(transport);
  trace_ = std::move(trace);
  tx_blocked_.store(false, std::memory_order_relaxed);
  room_.store(false, std::memory_order_relaxed);
  note_stalled(false);
  no_memory_ = false;
  rest_left_ = false;
  rx_ended_ = end_reported_ = false;
  socket_reported_.store(false, std::memory_order_relaxed);
  busy_since_ = Instant::never();
  // A doorbell of the connection before went with it.
  deferred_.store(false, std::memory_order_seq_cst);
  ack_left_.store(false, std::memory_order_relaxed);
  {
    // Counters of the stream before this one stay in the sum.
    const io::SpinGuard lock(sight_lock_);
    if (stream_) add(past_, stream_->counters());
    has_stream_.store(false, std::memory_order_release);
    stream_.emplace(params, owner_, device_.stags(), sq_);
    has_stream_.store(true, std::memory_order_release);
  }
  path_.reset();
  path_name_.store("tcp", std::memory_order_relaxed);
  cheap_.store(false, std::memory_order_relaxed);
  if (auto* both = dynamic_cast<io::PathTransport*>(transport_.get()); both != nullptr) {
    path_.emplace(*both, *stream_, params, device_.rings(), device_.config().ring_idle);
  }
  stream_->allow_remote(remote_access);
  live_.store(true, std::memory_order_release);
  device_.note_up(1);
  stream_->start();
  events_ = transport_->events(false);
  if (auto attached = poller->attach(*this, owner_.hold()); !attached) {
    stream_->abort();
    return attached;
  }
  poller_.store(poller.get(), std::memory_order_release);
  poller_kept_ = std::move(poller);
  return {};
}

void Lane::move_to(std::shared_ptr<Poller> poller) {
  if (!live() || poller_kept_ == nullptr || poller_kept_ == poller) return;
  std::shared_ptr<LaneOwner> owner = poller_kept_->detach(*this);
  // Cold in the new one, whose epoll reports what there is; of a ring, what comes.
  const bool more = transport_->settle();
  events_ = transport_->events(blocked());
  poller_.store(nullptr, std::memory_order_release);
  if (!poller->attach(*this, owner)) {
    poller_kept_.reset();
    parted_ = std::move(owner);
    stream_->transport_lost(false);
    return;
  }
  poller_.store(poller.get(), std::memory_order_release);
  poller_kept_ = std::move(poller);
  if (more) report_anew();
  // The poller before has a note of it, and does not find the lane any more.
  if (doorbell_waits()) send_posted();
}

// --- who does it ---

Turn Lane::run(std::uint32_t events) {
  // Before the lock: an edge is reported once, and the holder may be about to find no room.
  if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0)
    room_.store(true, std::memory_order_seq_cst);
  if (cheap_to_look_at() && events != 0) {
    socket_reported_.store(true, std::memory_order_release);
    events = 0;
  }
  if (!lock_.try_enter()) return {.busy = true};
  const Turn done = turn(events);
  leave();
  return done;
}

Turn Lane::glance() {
  if (!lock_.try_enter()) return {.busy = true};
  if (is_at_rest() && transport_->is_quiet()) {
    leave_unchanged();
    return {};
  }
  const Turn done = turn(0);
  leave();
  return done;
}

// Nothing waits to be sent, to be acknowledged, or for a receive.
bool Lane::is_at_rest() const {
  return live() && cheap_to_look_at() && !blocked() && !rx_ended_ && !awaits_receive() &&
         !waits_for_acks();
}

// As leave(), where nothing has been done that anything follows from.
void Lane::leave_unchanged() {
  if (lock_.leave()) {
    lock_.left();
    return;
  }
  send_posted();
  leave();
}

void Lane::look() {
  if (!lock_.try_enter()) return;
  look_alone();
  leave();
}

// What a turn leaves unread has been reported already, and is not again by itself.
void Lane::look_alone() {
  if (turn(0).more && live() && poller_kept_ != nullptr) report_anew();
}

void Lane::kick() {
  if (!lock_.enter_or_kick()) return;
  send_posted();
  leave();
}

// Where there was no room, the transport reports when there is.
void Lane::send_posted() {
  if (live() && !blocked()) transmit();
}

void Lane::send_rest() {
  if (!lock_.enter_or_kick()) return;
  if (live() && rest_left_) transmit(kSentAtEnd);
  leave();
}

void Lane::ring() {
  Poller* poller = this->poller();
  if (poller != nullptr && look_at_ack_.load(std::memory_order_relaxed) != 0) {
    note_answer(*poller);
  }
  if (poller == nullptr || !may_defer(*poller)) {
    kick();
    poller = this->poller();
    if (poller != nullptr) poller->note_rung();
    return;
  }
  // A full barrier: the thread that clears the flag sees what was posted before. If the flag was
  // set already, the poller has been told by the thread that set it.
  const bool left = deferred_.exchange(true, std::memory_order_seq_cst) || poller->collect(*this);
  if (left && this->poller() == poller) return;  // else it has moved, and nobody knows of it there
  kick();
}

// What came meanwhile is something new to send.
void Lane::leave() {
  settle_up();
  std::shared_ptr<LaneOwner> last = std::move(parted_);
  while (!lock_.leave()) {
    send_posted();
    settle_up();
    if (parted_ != nullptr) last = std::move(parted_);
  }
  lock_.left();
  owner_.lane_left();
}

void Lane::on_timer(io::TimerId id) {
  exclusively([&] {
    if (id == retry_timer_) retry_timer_ = 0;
    if (id == timer_) {
      timer_ = 0;
      timer_at_ = Instant::never();
    }
    if (!live()) return;
    if (std::exchange(no_memory_, false)) tx_blocked_.store(false, std::memory_order_relaxed);
    look_alone();  // what has come by now came in time
    if (live() && path_) path_->on_time(io::now());
    if (!stream_->finished() && stream_->deadline() <= io::now()) {
      stream_->expired(io::now());
      // A Send that was held may have moved the connection on, to the ring even, where a sleeper
      // has to say that it sleeps.
      look_alone();
    }
    if (live() && stream_->tx_pending()) transmit();
  });
}

// --- a turn ---

Turn Lane::turn(std::uint32_t events) {
  Turn out;
  if (!live()) return out;
  constexpr std::uint32_t kEnd = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  if (socket_reported_.load(std::memory_order_relaxed) &&
      socket_reported_.exchange(false, std::memory_order_acquire)) {
    transport_->reported();
  }
  if (events == 0 || (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) {
    out = receive((events & kEnd) != 0);
  }
  bool room = false;
  if (blocked()) {
    room =
        room_.exchange(false, std::memory_order_seq_cst) || (live() && transport_->may_have_room());
  }
  if (live() && !transport_->copies()) note_released();
  const bool due = live() && (room || !blocked()) && (stream_->tx_pending() || blocked());
  if (due && !(out.received && leaves_ack())) out.sent = transmit_counted();
  if (rest_left_) out.more = rest_told_ = true;
  if (waits_for_acks()) note_acknowledged();
  return out;
}

Turn Lane::receive(bool until_end) {
  Turn out;
  if (rx_ended_) return out;
  // Epoll says so once, perhaps while a held segment keeps us from reading on.
  end_reported_ |= until_end;
  until_end = end_reported_;
  if (stream_->awaits_receive()) {
    if (!stream_->retry_receive()) return out;
    out.received = true;
    if (stream_->finished()) return out;
  }
  for (int reads = 0; reads < kReadsPerTurn; ++reads) {
    proto::RxPlan plan;
    stream_->want(plan, scratch());
    if (plan.count == 0) return out;  // a Send waits for its receive
    if (!plan.placed) {
      plan.slices[0].size = std::min(plan.slices[0].size, transport_->read_ahead());
      plan.bytes = plan.slices[0].size;
    }
    const std::ptrdiff_t n = transport_->receive({plan.slices, plan.count});
    if (n > 0) {
      rx_calls_.add(1);
      const auto bytes = static_cast<std::size_t>(n);
      if (trace_ != nullptr) {
        trace_path();
        trace_->rx({plan.slices, plan.count}, bytes);
      }
      stream_->arrived(bytes);
      out.received = true;
      if (stream_->finished()) return out;
      // A short read has emptied the transport; if more has come since, it will be reported.
      if (bytes < plan.bytes && !until_end && transport_->short_read_is_all()) return out;
      continue;
    }
    stream_->arrived(0);
    if (n == 0) {
      if (trace_ != nullptr) trace_->rx_fin();
      rx_ended_ = true;
      stream_->peer_closed();
      out.received = true;
      return out;
    }
    if (n == -EAGAIN || n == -ENOBUFS || n == -ENOMEM) {
      rx_empty_.add(1);
      return out;
    }
    transport_error(static_cast<int>(-n));
    out.received = true;
    return out;
  }
  out.more = true;
  return out;
}

void Lane::transmit(std::uint64_t most) { (void)transmit_counted(most); }

bool Lane::transmit_counted(std::uint64_t most) {
  // A full barrier: a request whose doorbell this takes is seen by gather() below.
  (void)deferred_.exchange(false, std::memory_order_seq_cst);
  ack_left_.store(false, std::memory_order_relaxed);
  unflushed_bytes_.store(0, std::memory_order_relaxed);
  tx_blocked_.store(false, std::memory_order_relaxed);
  rest_left_ = false;
  bool moved = false;
  const std::uint64_t start = stream_ ? stream_->tx_offset() : 0;
  if (most == 0) {
    const bool alone = poller_kept_ == nullptr || poller_kept_->lanes() <= 1;
    most = alone ? kSentPerTurnAlone : kSentPerTurn;
  }
  while (live()) {
    if (stream_->tx_offset() - start >= most && stream_->tx_pending()) {
      leave_rest();
      break;
    }
    proto::TxBatch* batch = stream_->gather();
    if (batch == nullptr) {
      if (stream_->tx_pending()) without_batch();
      break;
    }
    moved = true;
    if (!send_batch(*batch)) break;
  }
  note_flush();
  if (live() && !rest_left_ && stream_->take_fin()) {
    if (trace_ != nullptr) trace_->tx_fin();
    transport_->shutdown_send();
  }
  return moved;
}

// As if there were no room, except that there is some: the next turn goes on. Requests that are
// posted meanwhile wait behind the rest.
void Lane::leave_rest() {
  rest_left_ = true;
  rest_told_ = false;
  tx_blocked_.store(true, std::memory_order_relaxed);
  room_.store(true, std::memory_order_seq_cst);
}

void Lane::note_flush() {
  const std::uint32_t tail = sq_.tail();
  streaming_.store(tail - flushed_tail_ >= kStreamOfPosts, std::memory_order_relaxed);
  flushed_tail_ = tail;
  if (const Poller* poller = this->poller()) {
    polls_at_flush_.store(poller->polls(), std::memory_order_relaxed);
  }
}

// False: the transport takes no more now.
bool Lane::send_batch(proto::TxBatch& batch) {
  const std::span<const Slice> slices{batch.slices + batch.slice_next,
                                      batch.slice_count - batch.slice_next};
  const std::size_t left = batch.bytes - batch.sent;
  const std::ptrdiff_t n = transport_->send(slices);
  if (n >= 0) {
    tx_calls_.add(1);
    const auto bytes = static_cast<std::size_t>(n);
    if (trace_ != nullptr) {
      trace_path();
      trace_->tx(slices, bytes);
    }
    stream_->sent(bytes);
    if (transport_->copies()) stream_->released(bytes);
    if (bytes == left) {
      note_stalled(false);
      return true;
    }
    note_stalled(true);
    tx_blocked_.store(true, std::memory_order_relaxed);
    // The time until there is room is good for the next one's checksums.
    stream_->prepare();
    return false;
  }
  stream_->sent(0);
  if (n == -EAGAIN || n == -ENOBUFS || n == -ENOMEM) {
    note_stalled(true);
    tx_blocked_.store(true, std::memory_order_relaxed);
    tx_blocked_calls_.add(1);
    no_memory_ = n != -EAGAIN;  // which nothing reports
    return false;
  }
  // After a reset there may still be a Terminate to read, which says more.
  if (n == -EPIPE || n == -ECONNRESET) (void)receive(true);
  if (live() && !stream_->finished()) transport_error(static_cast<int>(-n));
  return false;
}

void Lane::note_stalled(bool stalled) {
  const bool was = !stalled_since().is_never();
  if (was == stalled) return;
  stalled_since_.store(stalled ? io::now().ns : Instant::never().ns, std::memory_order_relaxed);
}

// All batches are in use, most of them perhaps by peers that take nothing. Tried again soon.
void Lane::without_batch() {
  no_memory_ = true;
  tx_blocked_.store(true, std::memory_order_relaxed);
  device_.note_without_batch();
}

void Lane::transport_error(int error) {
  if (error == EFAULT) {
    stream_->memory_fault();
  } else {
    stream_->transport_lost(error == ETIMEDOUT);
  }
}

bool Lane::waits_for_acks() const {
  return device_.config().completions == CompletionMode::kAcked && live() && sq_.size() != 0;
}

// For a transport that reads late.
void Lane::note_released() {
  const std::uint64_t done = transport_->released();
  if (done > stream_->released_offset()) {
    stream_->released(static_cast<std::size_t>(done - stream_->released_offset()));
  }
}

void Lane::note_acknowledged() {
  const std::uint64_t sent = stream_->tx_offset();
  stream_->acked(sent - std::min(sent, transport_->unacknowledged()));
}

// --- behind each turn ---

void Lane::settle_up() {
  owner_.turn_done();
  if (!stream_) return;
  if (live() && path_) step_path();
  if (live() && stream_->state() != proto::StreamState::kRts) {
    if (stream_->tx_pending() || !stream_->finished()) transmit();  // a Terminate, the FIN
    if (live() && path_) step_path();
    if (stream_->finished()) close_transport();
    if (!live()) owner_.turn_done();  // what was posted meanwhile waits for a connection now
  }
  if (!live()) return;
  if (stream_->awaits_receive() != awaits_receive()) {
    awaits_receive_.store(stream_->awaits_receive(), std::memory_order_relaxed);
  }
  if (blocked()) update_events();
  if (rest_left_ && !rest_told_ && poller_kept_ != nullptr) {
    rest_told_ = true;
    report_anew();
  }
  if (next_deadline() != timer_at_) update_deadline();
  if (retry_timer_ == 0 && (waits_for_acks() || no_memory_)) {
    retry_timer_ = home_->schedule(io::now() + kRetryPause, as_handler());
  }
}

// Room is asked for when a send has met none, and from then on: who blocks once blocks again.
void Lane::update_events() {
  const std::uint32_t events = transport_->events(true);
  if (events == events_) return;
  Poller* poller = this->poller();
  if (poller == nullptr) return;
  events_ = events;
  poller->update(*this, transport_->fd(), events);
}

// With the events that are registered: where room was asked for once, it stays asked for. Beside a
// ring the socket has room, and nothing else to say.
void Lane::report_anew() {
  const std::uint32_t also = cheap_to_look_at() ? EPOLLOUT : 0U;
  poller_kept_->update(*this, transport_->fd(), events_ | also);
}

// A change of the path comes to its next step behind the turn that brought it there.
void Lane::step_path() {
  while (path_->turn_done()) {
    if (!blocked()) transmit();
    if (!live()) return;
  }
  if (path_->failed() && stream_->state() == proto::StreamState::kRts) {
    stream_->fail(proto::Violation::kLocalFault);
  }
  path_name_.store(transport_->path(), std::memory_order_relaxed);
  cheap_.store(transport_->cheap_to_look_at(), std::memory_order_relaxed);
  if (path_->take_moved()) follow_transport();
}

// A bell that is gone is closed, and so in no epoll any more.
void Lane::follow_transport() {
  Poller* const poller = this->poller();
  if (poller == nullptr) return;  // not attached yet: that finds the bell
  if (transport_->bell() >= 0 && !poller->add_bell(*this)) stream_->transport_lost(false);
}

void Lane::trace_path() {
  if (!path_) return;
  const auto& both = static_cast<const io::PathTransport&>(*transport_);
  constexpr auto kRing = io::PathTransport::Way::kRing;
  trace_->by_ring(both.sends_by() == kRing, both.receives_by() == kRing);
}

Instant Lane::next_deadline() const {
  return path_ ? std::min(stream_->deadline(), path_->deadline()) : stream_->deadline();
}

void Lane::update_deadline() {
  home_->forget_timer(timer_);
  timer_at_ = next_deadline();
  timer_ = timer_at_.is_never() ? 0 : home_->schedule(timer_at_, as_handler());
}

std::weak_ptr<io::Handler> Lane::as_handler() {
  return std::shared_ptr<io::Handler>(owner_.hold(), this);
}

void Lane::close_transport() {
  if (!live()) return;
  live_.store(false, std::memory_order_release);
  poller_.store(nullptr, std::memory_order_release);
  if (poller_kept_ != nullptr) {
    parted_ = poller_kept_->detach(*this);
    poller_kept_.reset();
  }
  home_->forget_timer(timer_);
  home_->forget_timer(retry_timer_);
  timer_ = retry_timer_ = 0;
  timer_at_ = Instant::never();
  device_.note_up(-1);
  const bool reset = stream_->wants_reset();
  if (trace_ != nullptr && reset) trace_->reset(true);
  trace_.reset();
  if (path_ && stream_->state() == proto::StreamState::kIdle) path_->keep_ring();
  path_.reset();
  note_stalled(false);
  transport_->close(reset);
  if (!transport_->copies()) stream_->transport_closed();
  transport_.reset();
}

// --- cold and hot ---

bool Lane::attend() {
  if (!lock_.try_enter()) return false;
  if (live()) transport_->attend();
  leave();
  return true;
}

bool Lane::settle() {
  if (!lock_.try_enter()) return true;
  // What is unread behind a held segment keeps nobody awake: the stream's timer asks again.
  const bool again = live() && transport_->settle() && !stream_->awaits_receive();
  // Whoever looks once more does so without being told. Else the peer would ring, at each message,
  // for somebody who is awake.
  if (again) transport_->attend();
  leave();
  return again;
}

// --- the peer's host ---

void Lane::check_peer(Instant now) {
  const Config& config = device_.config();
  if (!lock_.try_enter()) return;  // somebody moves bytes: it is not dead
  if (live() && stream_->state() == proto::StreamState::kRts) {
    const io::PeerLiveness peer = transport_->liveness();
    const char* why = nullptr;
    if (peer.unacknowledged == 0 || peer.acknowledged != acked_seen_) {
      acked_seen_ = peer.acknowledged;
      busy_since_ = peer.unacknowledged == 0 ? Instant::never() : now;
    }
    if (peer.unacknowledged == 0) {
      if (config.keepalive.count() > 0 && peer.silent >= io::keepalive_limit(config.keepalive)) {
        why = "keepalive";
      }
    } else if (config.user_timeout.count() > 0 && !busy_since_.is_never() &&
               now - busy_since_ >= config.user_timeout) {
      why = "user_timeout";
    }
    if (why != nullptr) {
      io::log(LogLevel::kInfo, "a peer's host is silent for longer than {}", why);
      stream_->transport_lost(true);
    }
  }
  leave();
}

void Lane::end_stalled() {
  if (!lock_.try_enter()) return;
  if (live() && !stalled_since().is_never()) stream_->transport_lost(true);
  leave();
}

// --- doorbells ---

// Under load doorbells are collected, so that many small requests leave with one system call. The
// first after a pause or a poll rings at once, unless there is a stream of them, on this connection
// or on the CQ: a caller that keeps posting polls again when the queues are full.
bool Lane::may_defer(Poller& poller) {
  if (!live() || !room_to_collect() || !poller.collects()) return false;
  // With an Ack that waits for this post there is nothing collected yet.
  const bool collecting =
      deferred_.load(std::memory_order_relaxed) && !ack_left_.load(std::memory_order_relaxed);
  if (collecting && sq_.tail() % kPostsPerLook != 0) return true;
  const std::uint64_t now = io::cpu_ticks();
  const std::uint64_t received = rx_calls_.get();
  const bool answers = received != received_at_post_.exchange(received, std::memory_order_relaxed);
  if (poller.note_post(now, answers)) return true;
  if (!poller.kept_by_callers()) return false;
  if (streaming_.load(std::memory_order_relaxed)) return true;
  return poller.polls() == polls_at_flush_.load(std::memory_order_relaxed) &&
         now - poller.last_drive() < kDoorbellUs * device_.ticks_per_us();
}

// Between wired queue pairs. A program that polls and has just been given a message often posts its
// answer before it polls again; then the Ack needs no system call of its own. Left to the poller's
// next look, as a doorbell, it leaves with the answer, or without one with the next poll, before
// the caller sleeps, or by the timer. It is left only where the last messages were answered so.
bool Lane::leaves_ack() {
  Poller* const poller = this->poller();
  if (poller == nullptr || blocked() || !stream_->only_ack_due()) return false;
  if (!poller->kept_by_callers() || !poller->collects()) return false;
  const std::uint64_t before =
      look_at_ack_.exchange(poller->last_drive(), std::memory_order_relaxed);
  std::uint32_t answers = answers_.load(std::memory_order_relaxed);
  if (before != 0 && answers != 0) answers_.store(--answers, std::memory_order_relaxed);
  if (answers < kAnswersToWait) return false;
  ack_left_.store(true, std::memory_order_relaxed);
  return deferred_.exchange(true, std::memory_order_seq_cst) || poller->collect(*this);
}

// Called for the first post since an Ack was due.
void Lane::note_answer(const Poller& poller) {
  const bool at_once = poller.last_drive() == look_at_ack_.exchange(0, std::memory_order_relaxed);
  const std::uint32_t answers = answers_.load(std::memory_order_relaxed);
  if (at_once) {
    answers_.store(std::min(answers + 1, kAnswersMax), std::memory_order_relaxed);
  } else if (answers != 0) {
    answers_.store(answers - 1, std::memory_order_relaxed);
  }
}

void Lane::send_left_ack() {
  if (!live() || !ack_left_.load(std::memory_order_relaxed)) return;
  stream_->pause(true);
  transmit();
}

bool Lane::room_to_collect() const noexcept {
  return unflushed_bytes_.load(std::memory_order_relaxed) < kDoorbellBytes &&
         sq_.size() < sq_.capacity();
}

// --- sight ---

std::uint32_t Lane::max_ulpdu() const {
  const io::SpinGuard lock(sight_lock_);
  return has_stream_.load(std::memory_order_acquire) ? stream_->max_ulpdu() : 0;
}

void Lane::stop() {
  if (home_ == nullptr) return;
  home_->forget_timer(timer_);
  home_->forget_timer(retry_timer_);
  home_->wait_for(this);
}

void Lane::add_counters(Counters& sum) const {
  sum.tx_calls += tx_calls_.get();
  sum.rx_calls += rx_calls_.get();
  sum.rx_empty += rx_empty_.get();
  sum.tx_blocked += tx_blocked_calls_.get();
  const io::SpinGuard lock(sight_lock_);
  add(sum, past_);
  if (has_stream_.load(std::memory_order_acquire)) add(sum, stream_->counters());
}

}  // namespace weft::verbs
