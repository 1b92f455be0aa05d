#include "progress/shard_owner.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "os/clock.h"
#include "os/ticks.h"
#include "progress/shard.h"

namespace weft::progress {

namespace {

// Polls without success in a row before callers take over: kPollsToTake, and up to this where they
// went away again soon.
constexpr std::uint32_t kPollsToTakeMax = 1U << 16U;
// Without a caller's look for this long, the background takes over. Two of these at most.
constexpr Duration kCallersGone{10'000'000};
constexpr std::uint64_t kCallersGoneUs = 10'000;
// A request that no pass has sent is sent by a timer after this. While posts go on, the timer waits
// for some more of these: a caller that keeps posting polls when the queues are full.
constexpr Duration kLatePass{1'000'000};
// The same where no caller polls.
constexpr Duration kLatePassAlone{200'000};
constexpr std::uint32_t kLateDelaysMax = 4;
constexpr std::uint64_t kStillPostingUs = 100;
// Runs of the background in a row, then others of its thread have their turn.
constexpr int kRunsInARow = 16;
constexpr Duration kSpinAtMost{2'000'000};

}  // namespace

Status ShardOwner::begin() {
  if (registered_.load(std::memory_order_acquire)) return {};
  const os::SpinGuard lock(lock_);
  if (registered_.load(std::memory_order_relaxed)) return {};
  const std::uint32_t events = is_callers() ? EPOLLET : EPOLLIN | EPOLLET;
  const Status known =
      shard_.home().add(shard_.epoll(), events, io::handler_within(shard_.weak_from_this(), this));
  if (known) registered_.store(true, std::memory_order_release);
  return known;
}

// Timers that are still set when the shard has gone find nobody. False: there is no memory for one.
bool ShardOwner::start_timer(Duration wait, Timer& timer) {
  return shard_.home().schedule(os::now() + wait,
                                io::handler_within(shard_.weak_from_this(), &timer)) != 0;
}

// --- who it is ---

void ShardOwner::take() {
  untaken_.store(0, std::memory_order_relaxed);
  if (is_callers() || shard_.host().settings().progress == ProgressMode::kThread) return;
  {
    const os::SpinGuard lock(lock_);
    if (who_.exchange(Who::kCallers, std::memory_order_seq_cst) == Who::kCallers) return;
    if (registered_.load(std::memory_order_acquire)) {
      (void)shard_.home().modify(shard_.epoll(), EPOLLET);
    }
  }
  watch_callers();
}

// Edge-triggered, and asked anew: what is there already is reported.
void ShardOwner::give() {
  untaken_.store(0, std::memory_order_relaxed);
  if (!is_callers()) return;
  const os::SpinGuard lock(lock_);
  who_.store(Who::kBackground, std::memory_order_seq_cst);
  if (registered_.load(std::memory_order_acquire)) {
    (void)shard_.home().modify(shard_.epoll(), EPOLLIN | EPOLLET);
  }
}

void ShardOwner::begin_sleep() {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  abandoned_.store(false, std::memory_order_relaxed);
  take();
}

// A sleeper needs no watch over it; from here on it depends on what the caller does next.
void ShardOwner::end_sleep() {
  assert(sleepers() != 0);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  if (is_callers()) watch_callers();
}

void ShardOwner::note_look(std::uint64_t now) noexcept {
  last_look_.store(now, std::memory_order_relaxed);
  looks_.store(looks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// The home thread looks, in a while, whether callers still do.
void ShardOwner::watch_callers() {
  if (watching_.load(std::memory_order_seq_cst) ||
      watching_.exchange(true, std::memory_order_seq_cst)) {
    return;
  }
  if (start_timer(kCallersGone, watch_timer_)) return;
  // Nobody would find out that callers look no more. They take it again when they look on.
  watching_.store(false, std::memory_order_seq_cst);
  give();
}

void ShardOwner::look_after_callers() {
  watching_.store(false, std::memory_order_seq_cst);
  if (!is_callers() || sleepers() != 0) return;
  const std::uint32_t looks = looks_.load(std::memory_order_relaxed);
  const std::uint32_t more = looks - std::exchange(looks_seen_, looks);
  if (more != 0) {
    // Twice in a row: a program that polls for its own sends, and then watches memory, polls a lot,
    // but not for long.
    if (more > kLooksOfPollers && std::exchange(looked_before_, true)) {
      polls_to_take_.store(kPollsToTake, std::memory_order_relaxed);
      dense_.vain_to_take.store(kLooksOfPollers, std::memory_order_relaxed);
    }
    watch_callers();
    return;
  }
  looked_before_ = false;
  // A program that watches memory polls its CQ for its own sends only. If something has come that
  // it did not look for, wait for more polls next time.
  if (shard_.run(Look::kAll).moved) {
    const auto later = [](std::atomic<std::uint32_t>& polls) {
      const std::uint32_t now = polls.load(std::memory_order_relaxed);
      polls.store(std::min(now * 4, kPollsToTakeMax), std::memory_order_relaxed);
    };
    later(polls_to_take_);
    later(dense_.vain_to_take);
  }
  abandoned_.store(true, std::memory_order_relaxed);
  give();
  serve();
}

void ShardOwner::doubt() {
  if (!is_callers() || sleepers() != 0) return;
  if (doubt_.raise(looks_.load(std::memory_order_relaxed), os::now())) settle_doubt_later();
}

void ShardOwner::settle_doubt_later() {
  if (!start_timer(Doubt::kMoment, doubt_timer_)) doubt_.drop();
}

void ShardOwner::settle_doubt() {
  const auto verdict = doubt_.settle(looks_.load(std::memory_order_relaxed), os::now());
  if (verdict == Doubt::Verdict::kTooSoon) return settle_doubt_later();
  if (verdict == Doubt::Verdict::kThere || !is_callers() || sleepers() != 0) return;
  give();
  serve();
}

// --- callers ---

void ShardOwner::note_vain_poll() {
  if (is_callers()) return;
  const std::uint32_t polls = untaken_.load(std::memory_order_relaxed) + 1;
  untaken_.store(polls, std::memory_order_relaxed);
  if (polls >= polls_to_take_.load(std::memory_order_relaxed) || polled_densely()) take();
}

// A caller who does little else than poll an empty CQ keeps the shard, even if each row of empty
// polls is short, and even after a pause.
bool ShardOwner::polled_densely() {
  const std::uint64_t now = last_look();
  const std::uint64_t since = now - dense_.since.load(std::memory_order_relaxed);
  const std::uint32_t looks = looks_.load(std::memory_order_relaxed);
  const std::uint32_t vain = dense_.vain.load(std::memory_order_relaxed) + 1;
  dense_.vain.store(vain, std::memory_order_relaxed);
  if (since > kCallersGoneUs * shard_.host().ticks_per_us()) {
    dense_.since.store(now, std::memory_order_relaxed);
    dense_.looks_then.store(looks, std::memory_order_relaxed);
    dense_.vain.store(0, std::memory_order_relaxed);
    return false;
  }
  const std::uint32_t all = looks - dense_.looks_then.load(std::memory_order_relaxed);
  return vain >= dense_.vain_to_take.load(std::memory_order_relaxed) && vain >= all - all / 8;
}

// --- the home thread ---

void ShardOwner::on_io(std::uint32_t) { serve(); }

void ShardOwner::serve() {
  if (serve_now() && !is_callers() && passive_spin_.may_begin(shard_.host())) spin();
}

void ShardOwner::serve_soon() {
  (void)shard_.home().post([weak = shard_.weak_from_this()] {
    if (const auto shard = weak.lock()) shard->owner().serve();
  });
}

// True: it found something to do.
bool ShardOwner::serve_now() {
  bool any = false;
  for (int i = 0; i < kRunsInARow; ++i) {
    const Ran ran = shard_.run(Look::kAll);
    // The thread that holds the lock makes one more pass before it leaves.
    if (ran.busy) return any;
    any |= ran.moved;
    // Callers who have taken it over go on by themselves; a thread that goes on as well takes their
    // CPU. One that sleeps already is told.
    if (is_callers()) {
      if (ran.left && !is_patient()) shard_.make_epoll_readable();
      return any;
    }
    if (!ran.moved && !ran.left) return any;
  }
  serve_soon();
  return any;
}

void ShardOwner::spin() {
  const auto limit = shard_.host().settings().passive_spin;
  const Instant start = os::now();
  Instant end = start + limit;
  for (Instant now = start; now < end && !is_callers(); now = os::now()) {
    if (!passive_spin_.yield(shard_.host())) return;
    if (serve_now()) end = os::now() + limit;
    if (now - start > kSpinAtMost) return serve_soon();  // others of this thread have their turn
  }
  if (end != start + limit) passive_spin_.note_success();
}

// --- posts ---

// Behind the note that a request waits: a timer that is set still sees it, or is set anew.
void ShardOwner::start_late_pass() {
  if (late_set_.load(std::memory_order_seq_cst) ||
      late_set_.exchange(true, std::memory_order_seq_cst)) {
    return;
  }
  const bool started = start_timer(is_callers() ? kLatePass : kLatePassAlone, late_timer_);
  if (!started) late_set_.store(false, std::memory_order_seq_cst);
}

void ShardOwner::pass_late() {
  late_set_.store(false, std::memory_order_seq_cst);
  if (!shard_.posts_wait()) return;
  const std::uint64_t since = os::cpu_ticks() - pace_.last_post();
  const bool going_on = since < kStillPostingUs * shard_.host().ticks_per_us();
  if (going_on && ++late_delays_ < kLateDelaysMax && is_callers()) return start_late_pass();
  late_delays_ = 0;
  shard_.run_for_others();
}

}  // namespace weft::progress
