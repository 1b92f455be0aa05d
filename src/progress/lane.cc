// Life of a lane, and who has it.
#include "progress/lane.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "io/path_transport.h"
#include "io/socket.h"
#include "os/clock.h"
#include "os/guarded.h"
#include "os/log.h"

namespace weft::progress {

namespace {

// An attended lane that has received nothing for so many looks goes back to epoll.
constexpr std::uint32_t kIdleLooks = 200;
// The same for one that is cheap to look at, as long as looks follow one another: some
// milliseconds. A lane that nobody attends learns sooner that its peer was killed.
constexpr std::uint32_t kIdleLooksCheap = 50'000;
// With so many attended lanes each look at one more makes the others wait, and beyond kAttendedMany
// their peers' wake-ups cost less.
constexpr std::uint32_t kAttendedFew = 8;
constexpr std::uint32_t kAttendedMany = 32;
constexpr std::uint32_t kIdleLooksOfMany = 16;
// One look in so many at an attended lane that gave nothing is a whole turn.
constexpr std::uint32_t kLooksPerTurn = 64;
// How often TCP is asked what has been acknowledged (completions=acked), and whether it has memory
// again.
constexpr Duration kRetryPause{1'000'000};

void drop_left_bell(PathChange& path, Shard& shard) {
  if (const os::Fd bell = path.take_left_bell()) shard.remove_bell(bell.get());
}

}  // namespace

// --- life ---

Lane::~Lane() {
  assert((word_.load(std::memory_order_relaxed) & (kStateMask | kInList)) == kClosed);
}

Status Lane::open(std::unique_ptr<io::Transport> transport, std::unique_ptr<trace::Trace> trace,
                  const proto::StreamParams& params, Access remote_access) {
  assert(is_held() && !live() && shard_ != nullptr && transport != nullptr);
  transport_ = std::move(transport);
  trace_ = std::move(trace);
  tx_.blocked.store(false, std::memory_order_relaxed);
  tx_.rest = tx_.no_memory = false;
  rx_ = {};
  looks_.told = false;
  stalled_.note(false);
  peer_ = {};
  ack_.clear();
  stream_.begin(params, owner_, host_.stags(), sq_);
  path_.reset();
  path_name_.store("tcp", std::memory_order_relaxed);
  cheap_.store(false, std::memory_order_relaxed);
  if (io::PathTransport* const movable = transport_->movable(); movable != nullptr) {
    path_.emplace(*movable, *stream_, params, host_.rings(), settings_.ring_idle);
  }
  stream_->allow_remote(remote_access);
  live_.store(true, std::memory_order_release);
  host_.note_up(1);
  stream_->start();
  tx_.events = transport_->events(false);
  const Status attached = os::guarded([&] { return shard_->attach(*this, owner_.hold()); });
  if (!attached) {
    live_.store(false, std::memory_order_release);
    host_.note_up(-1);
    stream_->transport_lost(false);  // a wired queue pair keeps its work, and is tried again
    transport_->close(true);
    if (!transport_->copies()) stream_->transport_closed();
    transport_.reset();
    trace_.reset();
    path_.reset();
    return attached;
  }
  return {};
}

void Lane::close_transport() {
  if (!live()) return;
  assert(is_held() && stream_ && stream_->finished());
  live_.store(false, std::memory_order_release);
  set_attended(false);
  if (path_) drop_left_bell(*path_, *shard_);
  shard_->detach(*this);
  shard_->home().forget_timer(timers_.deadline);
  shard_->home().forget_timer(timers_.retry);
  timers_ = {};
  host_.note_up(-1);
  const bool reset = stream_->wants_reset();
  if (trace_ != nullptr && reset) trace_->reset(true);
  trace_.reset();
  if (path_ && stream_->state() == proto::StreamState::kIdle) path_->keep_ring();
  path_.reset();
  stalled_.note(false);
  transport_->close(reset);
  if (!transport_->copies()) stream_->transport_closed();
  transport_.reset();
}

void Lane::close_in_background() {
  ShardOwner& owner = shard_->owner();
  if (!live() || owner.sleepers() != 0 || !owner.is_callers()) return;
  owner.give();
  shard_->run_for_others();
}

void Lane::stop() {
  if (shard_ == nullptr) return;
  shard_->home().forget_timer(timers_.deadline);
  shard_->home().forget_timer(timers_.retry);
  shard_->home().wait_for(this);
}

std::weak_ptr<io::Handler> Lane::as_handler() {
  return std::shared_ptr<io::Handler>(owner_.hold(), this);
}

// --- who has it ---

void Lane::take() {
  Word before = 0;
  while (apply(control_step, &before) == Next::kWait) {
    word_.wait(before | kWanted, std::memory_order_relaxed);
  }
}

bool Lane::try_take() noexcept { return apply(try_step) == Next::kEnter; }

// A request that was posted meanwhile is something new to send. `to`: where the word goes if
// nothing came. REQUIRES: settle_up() has been called.
void Lane::leave(bool by_holder, Word to) {
  assert(is_held());
  while (true) {
    if (!live()) {
      to = kClosed;
    } else if (tx_.rest || rx_.more) {
      to = kReady;
    }
    if (end(to, by_holder)) break;
    send_posted();
    settle_up();
  }
  owner_.lane_left();
}

// False: something was posted meanwhile, and the lane is still held.
bool Lane::end(Word to, bool by_holder) {
  assert(is_held() && (to == kClosed) == !live());
  Shard& shard = *shard_;
  Word before = 0;
  const Next next = apply([to](Word w) { return end_step(w, to); }, &before);
  if (next == Next::kAgain) return false;
  if ((before & kWanted) != 0) word_.notify_all();
  if (next == Next::kPush) {
    shard.push(*this, by_holder);
    if (!by_holder) shard.kick_or_wake();
  }
  return true;
}

// The owner of a connection that control has ended is let go now, not when somebody looks next.
void Lane::end_control() {
  settle_up();
  leave();
  if (!shard_->has_retired()) return;
  const std::shared_ptr<Shard> shard = shard_;
  shard->run_for_others();
}

void Lane::signal(Word news, bool by_holder) {
  if (apply([news](Word w) { return signal_step(w, news); }) != Next::kPush) return;
  shard_->push(*this, by_holder);
  if (!by_holder) shard_->kick_or_wake();
}

void Lane::send_now() {
  if (apply([](Word w) { return post_step(w, kPosted); }) != Next::kEnter) return;
  send_posted();
  settle_up();
  leave();
}

void Lane::receive_posted() {
  if (apply([](Word w) { return post_step(w, kIn); }) != Next::kEnter) return;
  look();
  settle_up();
  leave();
}

// The shard gets the rest of the work, and what was found while others held the shard.
void Lane::look() { (void)turn(0); }

// --- in a pass ---

void Lane::reported(std::uint32_t events) {
  constexpr std::uint32_t kEnds = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  Word news = 0;
  if (events == 0 || (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) news |= kIn;
  if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) news |= kRoom;
  if (cheap_to_look_at()) {
    if (events != 0) news |= kReported | kIn;
  } else if ((events & kEnds) != 0) {
    news |= kEnd;
  }
  signal(news, true);
}

Turn Lane::run(bool patient) {
  Word before = 0;
  const Next next = apply(pop_step, &before);
  if (next == Next::kLeft) return {.busy = true};
  if (next != Next::kEnter) return {};
  const Word news = before & kNews;
  const bool nothing_new = (before & (kNews | kSignaled)) == 0;
  if (patient && nothing_new && is_quiet() && end(kReady, true)) return {};
  const Turn done = turn(news);
  settle_up();
  looks_.idle = done.received || done.more ? 0 : looks_.idle + 1;
  leave(true, where_it_goes(done, patient));
  return done;
}

// An attended lane with nothing to do, which stays so. Counts as a look.
bool Lane::is_quiet() {
  assert(is_held());
  if (!looks_.attended || looks_.idle % kLooksPerTurn == 0) return false;
  if (!is_at_rest() || !transport_->is_quiet()) return false;
  return ++looks_.idle < idle_looks();
}

// The number of looks that find nothing until it is left to epoll.
std::uint32_t Lane::idle_looks() const noexcept {
  if (!cheap_to_look_at() || shard_->is_looked_at_seldom()) return kIdleLooks;
  const std::uint32_t attended = shard_->attended().all.load(std::memory_order_relaxed);
  if (attended <= kAttendedFew) return kIdleLooksCheap;
  return attended <= kAttendedMany ? kIdleLooks : kIdleLooksOfMany;
}

// With the lane held. Asleep: epoll, or the peer by its bell, will tell.
Word Lane::where_it_goes(const Turn& turn, bool patient) {
  assert(is_held());
  if (!live()) return kClosed;
  const bool cheap = cheap_to_look_at();
  bool stays = turn.more || rx_.more || tx_.rest || ack_.waits();
  // A lane that has only sent sleeps on, unless its peer's answer can be looked for cheaply.
  const bool only_sent = looks_.told && !turn.received;
  const bool few = shard_->attended().all.load(std::memory_order_relaxed) < kAttendedFew;
  if (!stays && patient && !(only_sent && !(cheap && few))) {
    const bool place =
        cheap || looks_.costly ||
        shard_->attended().costly.load(std::memory_order_relaxed) < Shard::kCostlyMax;
    stays = place && (turn.anything() || looks_.idle < idle_looks());
    if (stays) {
      if (!looks_.attended) transport_->attend();
      set_attended(true);
      return kReady;
    }
  }
  if (stays) {
    set_attended(looks_.attended);
    return kReady;
  }
  if (only_sent) return kAsleep;
  set_attended(false);
  // Something may have come meanwhile: nobody sleeps over that. What is unread behind a held
  // segment keeps nobody awake: the stream's timer asks again.
  if (!transport_->settle() || stream_->awaits_receive()) {
    looks_.told = true;
    return kAsleep;
  }
  // Whoever looks once more does so without being told. Else the peer would wake, at each message,
  // somebody who is awake.
  transport_->attend();
  set_attended(true);
  return kReady;
}

void Lane::set_attended(bool attended) {
  assert(is_held());
  const auto count = [](std::atomic<std::uint32_t>& all, bool& was, bool is) {
    if (was == is) return;
    was = is;
    [[maybe_unused]] const std::uint32_t before =
        all.fetch_add(is ? 1U : ~0U, std::memory_order_relaxed);
    assert(is || before != 0);
  };
  if (attended) looks_.told = false;
  Shard::Attended& counts = shard_->attended();
  const bool costly = attended && !cheap_to_look_at();
  count(counts.all, looks_.attended, attended);
  count(counts.costly, looks_.costly, costly);
  count(counts.blocked, looks_.blocked, costly && blocked());
}

// --- others ---

void Lane::on_timer(io::TimerId id) {
  exclusively([&] {
    if (id == timers_.retry) timers_.retry = 0;
    if (id == timers_.deadline) {
      timers_.deadline = 0;
      timers_.at = Instant::never();
    }
    if (!live()) return;
    if (std::exchange(tx_.no_memory, false)) tx_.blocked.store(false, std::memory_order_relaxed);
    look();  // what has come by now came in time
    if (live() && path_) path_->on_time(os::now());
    if (!stream_->finished() && stream_->deadline() <= os::now()) {
      stream_->expired(os::now());
      // A Send that was held may have moved the connection on, to the ring even, where a sleeper
      // has to say that it sleeps.
      look();
    }
    if (live() && stream_->tx_pending()) transmit();
  });
}

void Lane::check_peer(Instant now) {
  take();  // whoever holds the lane may be a caller that only looks, again and again
  if (live() && stream_->state() == proto::StreamState::kRts) {
    // At the first look, an eighth of the limit later at most: others are over by then.
    if (!std::exchange(peer_.probed, true)) transport_->keep_alive(settings_.keepalive);
    const io::PeerLiveness peer = transport_->liveness();
    const char* why = nullptr;
    if (peer.unacknowledged == 0 || peer.acknowledged != peer_.acknowledged) {
      peer_.acknowledged = peer.acknowledged;
      peer_.busy_since = peer.unacknowledged == 0 ? Instant::never() : now;
    }
    if (peer.unacknowledged == 0) {
      if (settings_.keepalive.count() > 0 &&
          peer.silent >= io::keepalive_limit(settings_.keepalive)) {
        why = "keepalive";
      }
    } else if (settings_.user_timeout.count() > 0 && !peer_.busy_since.is_never() &&
               now - peer_.busy_since >= settings_.user_timeout) {
      why = "user_timeout";
    }
    if (why != nullptr) {
      os::log(LogLevel::kInfo, "a peer's host is silent for longer than {}", why);
      stream_->transport_lost(true);
    }
  }
  end_control();
}

void Lane::end_stalled() {
  if (!try_take()) return;
  if (live() && !stalled_since().is_never()) stream_->transport_lost(true);
  end_control();
}

void Lane::send_at_exit() {
  if (!post_waits() && !blocked() && !ack_.waits()) return;
  if (!try_take()) return;
  if (live() && (!blocked() || tx_.rest)) transmit(kSentAtEnd);
  settle_up();
  leave();
}

// --- behind each turn ---

void Lane::settle_up() {
  assert(is_held());
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
  const Instant next =
      path_ ? std::min(stream_->deadline(), path_->deadline()) : stream_->deadline();
  if (next != timers_.at) update_deadline(next);
  if (timers_.retry == 0 && (waits_for_acks() || tx_.no_memory)) {
    timers_.retry = shard_->home().schedule(os::now() + kRetryPause, as_handler());
  }
}

// Room is asked for when a send has met none, and from then on: who blocks once blocks again.
void Lane::update_events() {
  assert(is_held() && live());
  const std::uint32_t events = transport_->events(true);
  if (events == tx_.events) return;
  tx_.events = events;
  shard_->update(*this, transport_->fd(), events);
}

// A change of the path comes to its next step behind the turn that brought it there.
void Lane::step_path() {
  assert(is_held() && live() && path_);
  if (path_->at_rest()) return;
  while (path_->turn_done()) {
    if (!blocked()) transmit();
    if (!live()) return;
  }
  if (path_->failed() && stream_->state() == proto::StreamState::kRts) {
    stream_->fail(proto::Violation::kLocalFault);
  }
  path_name_.store(transport_->path(), std::memory_order_relaxed);
  cheap_.store(transport_->cheap_to_look_at(), std::memory_order_relaxed);
  if (!path_->take_moved()) return;
  drop_left_bell(*path_, *shard_);
  if (transport_->bell() >= 0 && !shard_->add_bell(*this)) stream_->transport_lost(false);
}

void Lane::update_deadline(Instant next) {
  assert(is_held());
  shard_->home().forget_timer(timers_.deadline);
  timers_.deadline = next.is_never() ? 0 : shard_->home().schedule(next, as_handler());
  timers_.at = timers_.deadline == 0 ? Instant::never() : next;  // the next turn tries again
}

// --- sight ---

void Lane::add_counters(Counters& sum) const {
  sum.tx_calls += calls_.tx.get();
  sum.rx_calls += calls_.rx.get();
  sum.rx_empty += calls_.rx_empty.get();
  sum.tx_blocked += calls_.tx_blocked.get();
  stream_.add_counters(sum);
}

}  // namespace weft::progress
