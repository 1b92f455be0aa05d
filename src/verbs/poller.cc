#include "verbs/poller.h"

#include <sched.h>
#include <sys/epoll.h>
#include <weft/system_error.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/patience.h"
#include "io/calls.h"
#include "io/clock.h"
#include "io/ticks.h"

namespace weft::verbs {

namespace {

constexpr int kEventsPerLook = 32;
// A hot lane that has received nothing for so many runs goes back to epoll.
constexpr std::uint32_t kHotRuns = 200;
// The same for one that is cheap to look at, as long as others do not want its place and looks
// follow one another: some milliseconds. Looks further apart than kSeldomUs are no such row; a lane
// that is cold learns sooner that its peer was killed.
constexpr std::uint32_t kHotRunsCheap = 50'000;
constexpr std::uint64_t kSeldomUs = 50;
// One look in so many at a hot lane that gave nothing is a whole run; the others are glances.
constexpr std::uint32_t kGlancesPerRun = 64;
// With hot lanes, one pass in so many asks epoll about the others.
constexpr std::uint32_t kPassesPerLook = 4;
// Polls without success in a row before callers take over: kPollsToTake, and up to this where they
// went away again soon.
constexpr std::uint32_t kPollsToTakeMax = 1U << 16U;
// Without a caller's look for this long, the background takes over. Two of these at most.
constexpr Duration kCallersGone{10'000'000};
constexpr std::uint64_t kCallersGoneUs = 10'000;
// A doorbell that no poll has rung is rung by a timer after this. While posts go on, the timer
// waits for some more of these: a caller that keeps posting polls when the queues are full.
constexpr Duration kLateBell{1'000'000};
// The same where no caller polls.
constexpr Duration kLateBellAlone{200'000};
constexpr std::uint32_t kBellDelaysMax = 4;
constexpr std::uint64_t kStillPostingUs = 100;
// So many posts between two polls are a stream.
constexpr std::uint32_t kStreamOfPosts = 8;
// Where nobody polls, posts further apart than this are none.
constexpr std::uint64_t kStreamGapUs = 2;
// Passes of the background in a row, then others of its thread have their turn.
constexpr int kPassesInARow = 16;

// A yield that takes this long has run somebody else.
constexpr std::uint64_t kLongYieldUs = 5;
// A peer does what there is to do and yields as well. Who keeps the core for this long is none,
// whatever has come meanwhile.
constexpr std::uint64_t kStrangersYieldUs = 2000;
constexpr std::size_t kHelpedMax = 4;
// Where the background's spinning gets in somebody's way, it pauses, longer each time. A program
// that wants the core keeps it for milliseconds; an interrupt, or a host that runs something else
// for a moment, is none.
constexpr std::uint64_t kCoreWantedUs = 200;
constexpr Duration kSpinPauseMin{1'000'000};
constexpr Duration kSpinPauseMax{1'000'000'000};
constexpr Duration kSpinAtMost{2'000'000};
constexpr Duration kCoresAskedEach{1'000'000};

// In the place of a slot's highest bit: the bell beside the socket.
constexpr std::uint64_t kBellBit = 1ULL << 31U;

std::uint64_t make_token(std::uint32_t slot, std::uint32_t generation) {
  return std::uint64_t{generation} << 32U | slot;
}

}  // namespace

// --- life ---

Result<std::shared_ptr<Poller>> Poller::create(std::shared_ptr<DeviceImpl> device,
                                               io::Engine& home) {
  std::shared_ptr<Poller> poller(new Poller(std::move(device), home));
  poller->epoll_ = io::Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!poller->epoll_) return fail(system_error(errno));
  return poller;
}

Poller::~Poller() {
  if (!device_->usable()) return;
  home_.forget(epoll_.get());
}

// Timers that are still set when this has gone find nobody.
void Poller::start_timer(Duration wait, Timer& timer) {
  static_cast<void>(home_.schedule(io::now() + wait, io::handler_within(weak_from_this(), &timer)));
}

Poller& Poller::root() noexcept {
  Poller* poller = this;
  while (Poller* next = poller->merged_into_.load(std::memory_order_acquire)) poller = next;
  return *poller;
}

// REQUIRES: the device's topology lock, so that chains never close into a ring.
void Poller::merge(const std::shared_ptr<Poller>& from, const std::shared_ptr<Poller>& to) {
  from->successor_ = to;
  from->merged_into_.store(to.get(), std::memory_order_release);
  // A lane that opens now finds `to`; those that are here move one by one.
  for (const std::uint64_t token : from->tokens()) {
    const Found found = from->find(token);
    if (found.lane == nullptr) continue;
    found.lane->exclusively([&] {
      if (found.lane->poller() == from.get()) found.lane->move_to(to);
    });
  }
}

// --- lanes ---

Status Poller::attach(Lane& lane, std::shared_ptr<LaneOwner> owner) {
  std::uint32_t slot = 0;
  {
    const io::SpinGuard lock(table_lock_);
    if (free_slots_.empty()) {
      slot = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    slots_[slot].owner = std::move(owner);
    slots_[slot].lane = &lane;
    lane.token.store(make_token(slot, slots_[slot].generation), std::memory_order_relaxed);
  }
  lane_count_.fetch_add(1, std::memory_order_relaxed);
  epoll_event event{};
  event.events = lane.transport()->events(lane.blocked());
  event.data.u64 = lane.token.load(std::memory_order_relaxed);
  const bool added = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, lane.transport()->fd(), &event) == 0 &&
                     (lane.transport()->bell() < 0 || add_bell(lane));
  if (added && !registered_.exchange(true, std::memory_order_acq_rel)) {
    const io::SpinGuard lock(keeper_lock_);
    const bool background = keeper_.load(std::memory_order_relaxed) == Keeper::kBackground;
    const auto known =
        home_.add(epoll_.get(), background ? EPOLLIN | EPOLLET : EPOLLET, weak_from_this());
    if (known) return {};
    registered_.store(false, std::memory_order_release);
  } else if (added) {
    return {};
  }
  (void)detach(lane);
  return fail(Error::kSystem);
}

std::shared_ptr<LaneOwner> Poller::detach(Lane& lane) {
  epoll_event unused{};
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane.transport()->fd(), &unused);
  const int bell = lane.transport()->bell();
  if (bell >= 0) (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, bell, &unused);
  const auto slot = static_cast<std::uint32_t>(lane.token.load(std::memory_order_relaxed));
  const io::SpinGuard lock(table_lock_);
  ++slots_[slot].generation;
  slots_[slot].lane = nullptr;
  free_slots_.push_back(slot);
  lane_count_.fetch_sub(1, std::memory_order_relaxed);
  return std::move(slots_[slot].owner);
}

void Poller::update(const Lane& lane, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = lane.token.load(std::memory_order_relaxed);
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

bool Poller::add_bell(Lane& lane) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = lane.token.load(std::memory_order_relaxed) | kBellBit;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, lane.transport()->bell(), &event) == 0;
}

Poller::Found Poller::find(std::uint64_t token) {
  const auto slot = static_cast<std::uint32_t>(token);
  const io::SpinGuard lock(table_lock_);
  if (slot >= slots_.size() || slots_[slot].generation != token >> 32U) return {};
  return {slots_[slot].owner, slots_[slot].lane};
}

std::vector<std::uint64_t> Poller::tokens() {
  const io::SpinGuard lock(table_lock_);
  std::vector<std::uint64_t> out;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].lane != nullptr) out.push_back(make_token(i, slots_[i].generation));
  }
  return out;
}

// --- one pass ---
//
// First what is known to be due (doorbells), then lanes that gave something a moment ago, then
// whatever the kernel reports of the others. Never blocks.

// `warm`: who calls looks again at once, so lanes that gave something are asked directly then.
bool Poller::pass(bool look, bool warm, bool ring) {
  bool moved = false;
  const bool ours = kept_by_callers();
  if (ring && doorbell_due_.load(std::memory_order_acquire)) moved = ring_doorbells(warm && ours);
  const bool hurry = seldom_ || hot_count_.load(std::memory_order_relaxed) == kHotMax;
  moved |= run_hot(true, [ours, hurry](const Hot& hot) {
    const bool patient = !hurry && hot.lane->cheap_to_look_at();
    return ours && hot.idle < (patient ? kHotRunsCheap : kHotRuns);
  });
  const std::uint32_t hot = hot_count_.load(std::memory_order_relaxed);
  const bool others = lane_count_.load(std::memory_order_relaxed) > hot;
  if (look || hot_blocked_ || (others && (hot == 0 || ++since_look_ >= kPassesPerLook))) {
    since_look_ = 0;
    moved |= harvest(warm);
  }
  return moved;
}

// `warm`: a lane that is cheap to look at becomes hot; its peer's answer is not far, and until then
// no pass has to ask epoll.
bool Poller::ring_doorbells(bool warm) {
  doorbell_due_.store(false, std::memory_order_seq_cst);
  {
    const io::SpinGuard lock(doorbell_lock_);
    ringing_.swap(doorbells_);
  }
  const bool any = !ringing_.empty();
  for (const std::uint64_t token : ringing_) {
    Found found = find(token);
    if (found.lane == nullptr) continue;
    if (found.lane->doorbell_waits()) found.lane->kick();
    const bool place = hot_count_.load(std::memory_order_relaxed) < kHotMax;
    if (warm && place && found.lane->cheap_to_look_at()) make_hot(std::move(found));
  }
  ringing_.clear();
  return any;
}

// Runs each hot lane once; those stay hot for which `stays` holds, as far as they are still ours.
// `again`: so does the next pass.
template <class Stays>
bool Poller::run_hot(bool again, Stays stays) {
  const std::uint32_t count = hot_count_.load(std::memory_order_relaxed);
  bool moved = false;
  std::uint32_t kept = 0;
  hot_blocked_ = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    Hot& hot = hot_[i];
    if (!hot.attended) hot.attended = hot.lane->attend();
    const bool glance = again && hot.attended && hot.idle % kGlancesPerRun != 0;
    const Turn turn = glance ? hot.lane->glance() : hot.lane->run(0);
    moved |= turn.anything();
    hot.idle = turn.received || turn.more ? 0 : hot.idle + 1;
    const bool here = hot.lane->poller() == this;
    const bool idle = !turn.anything() && !stays(hot);
    // A lane that settles may find that something came meanwhile: nobody sleeps over that.
    const bool late = here && idle && hot.lane->settle();
    moved |= late;
    if (here && (!idle || late)) {
      hot_blocked_ |= hot.lane->blocked() && !hot.lane->cheap_to_look_at();
      if (kept != i) hot_[kept] = std::move(hot);
      ++kept;
    } else {
      hot.owner.reset();
    }
  }
  hot_count_.store(kept, std::memory_order_relaxed);
  return moved;
}

bool Poller::harvest(bool warm) {
  epoll_event events[kEventsPerLook];
  const int count = io::calls::epoll_look(epoll_.get(), events, kEventsPerLook);
  bool moved = false;
  warm = warm && kept_by_callers();
  for (int i = 0; i < count; ++i) {
    const std::uint64_t token = events[i].data.u64;
    Found found = find(token & ~kBellBit);
    if (found.lane == nullptr) continue;  // gone meanwhile
    const bool rung = (token & kBellBit) != 0;
    const Turn turn = found.lane->run(rung ? 0 : events[i].events);
    moved |= turn.anything();
    // What was left unread is not reported again, nor is what somebody else was busy with.
    if (turn.more || turn.busy || (warm && turn.received)) make_hot(std::move(found));
  }
  return moved || count == kEventsPerLook;
}

// No room: its next event finds it, or, where something is left to do, the next pass.
void Poller::make_hot(Found found) {
  const std::uint32_t count = hot_count_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (hot_[i].lane == found.lane) return;
  }
  if (count == kHotMax) {
    // Reported anew by the kernel, since it is still readable.
    found.lane->exclusively([&] {
      if (found.lane->live() && found.lane->poller() == this) found.lane->report_anew();
    });
    return;
  }
  Lane* const lane = found.lane;
  hot_[count] = {std::move(found.owner), lane, 0, lane->attend()};
  hot_count_.store(count + 1, std::memory_order_relaxed);
}

bool Poller::cool_down() {
  const bool moved = run_hot(false, [](const Hot&) { return false; });
  return moved || hot_count_.load(std::memory_order_relaxed) != 0;
}

// A kick means that there is something new, perhaps in epoll: one more pass, which asks epoll.
// True: that pass moved something, and may have left a lane hot.
bool Poller::leave() {
  bool any = false;
  while (!lock_.leave()) {
    const bool moved = pass(true);
    any |= moved;
    if (moved && !kept_by_callers()) serve_soon();
  }
  lock_.left();
  return any;
}

// --- callers ---

bool Poller::drive(bool ring) {
  const std::uint64_t now = io::cpu_ticks();
  const std::uint64_t since = now - last_drive_.load(std::memory_order_relaxed);
  last_drive_.store(now, std::memory_order_relaxed);
  drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (!lock_.try_enter()) return true;
  seldom_ = since > kSeldomUs * device_->ticks_per_us();
  bool moved = pass(false, true, ring);
  if (!moved && !helped_.empty()) moved = help_others();
  leave();
  leave_hot_to_background();
  return moved;
}

// A caller that looks now and then, while the background runs the lanes, may have met one with more
// than fits in a turn. Its events are used up, and the caller may sleep in poll(2) next.
void Poller::leave_hot_to_background() {
  if (hot_count_.load(std::memory_order_relaxed) != 0 && !kept_by_callers()) serve_soon();
}

void Poller::begin_sleep() {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  abandoned_.store(false, std::memory_order_relaxed);
  take();
}

void Poller::look() {
  if (!lock_.enter_or_kick()) return;
  (void)pass(true, false);
  leave();
}

void Poller::end_sleep() {
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  // A sleeper needs no watch over it; from here on the lanes depend on what the caller does next.
  if (kept_by_callers()) watch_callers();
}

bool Poller::settle() {
  if (!lock_.try_enter()) return true;
  bool again = doorbell_due_.load(std::memory_order_seq_cst) && ring_doorbells();
  again |= cool_down();
  // A kick at the last moment may have made a lane hot: nobody may sleep over that.
  const std::vector<std::weak_ptr<Poller>> helped = std::exchange(helped_, {});
  again |= leave();
  // A sleeper does not help, and their next message must not wait until somebody notices.
  for (const auto& weak : helped) {
    const auto other = weak.lock();
    if (other != nullptr && other->collects()) other->hand_over();
  }
  return again;
}

// --- who runs it ---

void Poller::take() {
  untaken_.store(0, std::memory_order_relaxed);
  if (kept_by_callers() || device_->config().progress == ProgressMode::kThread) return;
  {
    const io::SpinGuard lock(keeper_lock_);
    if (keeper_.exchange(Keeper::kCallers, std::memory_order_seq_cst) == Keeper::kCallers) return;
    if (registered_.load(std::memory_order_acquire)) (void)home_.modify(epoll_.get(), EPOLLET);
  }
  watch_callers();
}

void Poller::hand_over() {
  untaken_.store(0, std::memory_order_relaxed);
  if (kept_by_callers()) {
    const io::SpinGuard lock(keeper_lock_);
    keeper_.store(Keeper::kBackground, std::memory_order_seq_cst);
    // Edge-triggered, and asked anew: what is there already is reported.
    if (registered_.load(std::memory_order_acquire)) {
      (void)home_.modify(epoll_.get(), EPOLLIN | EPOLLET);
    }
  }
  // What was hot is not known to be empty.
  if (lock_.enter_or_kick()) {
    if (doorbell_due_.load(std::memory_order_seq_cst)) ring_doorbells();
    const bool more = cool_down();
    leave();
    if (!more) return;
  }
  if (hot_count_.load(std::memory_order_relaxed) != 0) serve_soon();
}

// The home thread looks, in a while, whether callers still do.
void Poller::watch_callers() {
  if (watching_callers_.exchange(true, std::memory_order_seq_cst)) return;
  start_timer(kCallersGone, caller_timer_);
}

void Poller::look_after_callers() {
  watching_callers_.store(false, std::memory_order_seq_cst);
  if (!kept_by_callers() || sleepers_.load(std::memory_order_seq_cst) != 0) return;
  const std::uint32_t drives = drives_.load(std::memory_order_relaxed);
  const std::uint32_t more = drives - std::exchange(drives_seen_, drives);
  if (more != 0) {
    // Twice in a row: a program that polls for its own sends, and then watches memory, polls a lot,
    // but not for long.
    if (more > kDrivesOfPollers && std::exchange(polled_before_, true)) {
      polls_to_take_.store(kPollsToTake, std::memory_order_relaxed);
      vain_to_take_.store(kDrivesOfPollers, std::memory_order_relaxed);
    }
    watch_callers();
  } else {
    polled_before_ = false;
    // A program that watches memory polls its CQ for its own sends only. If something has come that
    // it did not look for, wait for more polls next time.
    if (run_once(true).value_or(false)) {
      const auto more_patience = [](std::atomic<std::uint32_t>& polls) {
        const std::uint32_t now = polls.load(std::memory_order_relaxed);
        polls.store(std::min(now * 4, kPollsToTakeMax), std::memory_order_relaxed);
      };
      more_patience(polls_to_take_);
      more_patience(vain_to_take_);
    }
    abandoned_.store(true, std::memory_order_relaxed);
    hand_over();
  }
}

// --- the home thread ---

void Poller::on_io(std::uint32_t) { serve(); }

void Poller::serve() {
  if (serve_now() && passive_spin_allowed()) spin();
}

void Poller::serve_soon() {
  (void)home_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->serve();
  });
}

// True: it found something to do.
bool Poller::serve_now() {
  // The thread that holds the lock makes one more pass before it leaves.
  if (!lock_.enter_or_kick()) return false;
  bool moved = true;
  bool any = false;
  for (int i = 0; i < kPassesInARow && moved; ++i) {
    moved = pass(true);
    any |= moved;
    // Callers who have taken it over go on by themselves; a thread that goes on as well takes their
    // CPU.
    if (kept_by_callers()) moved = false;
  }
  if (any) served_.store(served_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  leave();
  if (moved) serve_soon();
  return any;
}

// Programs that watch memory instead of a CQ wait for this thread each time. It looks a little
// longer, as long as nobody else wants the CPU. A yield that takes long has run somebody; where
// another core is idle, the system will soon move one of the two, and this goes on.
void Poller::spin() {
  const auto limit = device_->config().passive_spin;
  const Instant start = io::now();
  Instant end = start + limit;
  for (Instant now = start; now < end && !kept_by_callers(); now = io::now()) {
    const std::uint64_t before = io::cpu_ticks();
    sched_yield();
    const bool waited = io::cpu_ticks() - before > kCoreWantedUs * device_->ticks_per_us();
    if (waited && !device_->machine_cores().are_enough().value_or(false)) {
      spin_pause_ = std::min(spin_pause_ * 2, kSpinPauseMax);
      no_spin_before_ = io::now() + spin_pause_;
      return;
    }
    if (serve_now()) end = io::now() + limit;
    if (now - start > kSpinAtMost) {
      serve_soon();  // others of this thread have their turn
      return;
    }
  }
  if (end != start + limit) spin_pause_ = kSpinPauseMin;
}

bool Poller::passive_spin_allowed() {
  return device_->config().passive_spin.count() > 0 && device_->cores() > 1 && !kept_by_callers() &&
         io::now() >= no_spin_before_ && cores_are_enough();
}

// Where the system does not say, yields do.
bool Poller::cores_are_enough() {
  const Instant now = io::now();
  if (now - cores_asked_at_ >= kCoresAskedEach) {
    cores_asked_at_ = now;
    cores_enough_ = device_->machine_cores().are_enough().value_or(true);
  }
  return cores_enough_;
}

// --- doorbells ---

bool Poller::collect(Lane& lane) {
  {
    const io::SpinGuard lock(doorbell_lock_);
    doorbells_.push_back(lane.token.load(std::memory_order_relaxed));
  }
  doorbell_due_.store(true, std::memory_order_seq_cst);
  start_bell();
  // Looked at again behind the note: a caller who has gone to sleep since has not seen it.
  return sleepers_.load(std::memory_order_seq_cst) == 0;
}

// Where nobody polls, a program may wait in memory for the answer to each post.
bool Poller::note_post(std::uint64_t now, bool answers) noexcept {
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
  std::uint32_t posts = posts_.load(std::memory_order_relaxed) + 1;
  if (polls != polls_at_post_.load(std::memory_order_relaxed)) {
    polls_at_post_.store(polls, std::memory_order_relaxed);
    streaming_.store(posts > kStreamOfPosts, std::memory_order_relaxed);
    posts = 1;
  } else if (!kept_by_callers() && (answers || now - last_post_.load(std::memory_order_relaxed) >
                                                   kStreamGapUs * device_->ticks_per_us())) {
    streaming_.store(false, std::memory_order_relaxed);
    posts = 1;
  }
  posts_.store(posts, std::memory_order_relaxed);
  last_post_.store(now, std::memory_order_relaxed);
  return posts >= kStreamOfPosts || streaming_.load(std::memory_order_relaxed);
}

void Poller::ring_late() {
  late_bell_.store(false, std::memory_order_seq_cst);
  if (!doorbell_due_.load(std::memory_order_seq_cst)) return;
  const std::uint64_t since = io::cpu_ticks() - last_post_.load(std::memory_order_relaxed);
  const bool going_on = since < kStillPostingUs * device_->ticks_per_us();
  if (going_on && ++bell_delays_ < kBellDelaysMax && kept_by_callers()) {
    start_bell();
    return;
  }
  bell_delays_ = 0;
  if (!lock_.enter_or_kick()) return;
  ring_doorbells();
  leave();
}

// Not as a pass does, which may receive: the thread's buffers for that may be destroyed already.
void Poller::ring_at_exit() {
  for (const std::uint64_t token : tokens()) {
    const Found found = find(token);
    if (found.lane == nullptr) continue;
    if (found.lane->doorbell_waits()) found.lane->kick();
    if (found.lane->blocked()) found.lane->send_rest();
  }
}

// Behind the note that a doorbell waits: a bell that is set still sees it, or is set anew.
void Poller::start_bell() {
  if (late_bell_.load(std::memory_order_seq_cst) ||
      late_bell_.exchange(true, std::memory_order_seq_cst)) {
    return;
  }
  start_timer(kept_by_callers() ? kLateBell : kLateBellAlone, bell_timer_);
}

// --- giving way, and helping ---

// See Patience. A yield costs little if no other thread wants the core; there it is done seldom.
void Poller::nothing_found() {
  if (!kept_by_callers()) {
    const std::uint32_t polls = untaken_.load(std::memory_order_relaxed) + 1;
    untaken_.store(polls, std::memory_order_relaxed);
    if (polls >= polls_to_take_.load(std::memory_order_relaxed) || polled_densely()) take();
  }
  thread_local Patience patience;
  if (!patience.is_over()) return;
  const std::uint64_t before = io::cpu_ticks();
  sched_yield();
  const std::uint64_t took_us = (io::cpu_ticks() - before) / device_->ticks_per_us();
  if (took_us < kLongYieldUs) {
    patience.note(Yielded::kToNobody);
  } else {
    const bool peer = took_us < kStrangersYieldUs && run_once(true).value_or(true);
    patience.note(peer ? Yielded::kToAPeer : Yielded::kToAStranger);
  }
  look_for_others();
}

// A caller who does little else than poll in vain is one to count on, even if each row of polls in
// vain is short, and even if he once went away.
bool Poller::polled_densely() {
  const std::uint64_t now = last_drive_.load(std::memory_order_relaxed);
  const std::uint64_t since = now - dense_since_.load(std::memory_order_relaxed);
  const std::uint32_t drives = drives_.load(std::memory_order_relaxed);
  const std::uint32_t vain = vain_.load(std::memory_order_relaxed) + 1;
  vain_.store(vain, std::memory_order_relaxed);
  if (since > kCallersGoneUs * device_->ticks_per_us()) {
    dense_since_.store(now, std::memory_order_relaxed);
    drives_then_.store(drives, std::memory_order_relaxed);
    vain_.store(0, std::memory_order_relaxed);
    return false;
  }
  const std::uint32_t all = drives - drives_then_.load(std::memory_order_relaxed);
  return vain >= vain_to_take_.load(std::memory_order_relaxed) && vain >= all - all / 8;
}

// Whether something moved; nothing: another thread is at it.
std::optional<bool> Poller::run_once(bool look) {
  if (!lock_.try_enter()) return std::nullopt;
  const bool moved = pass(look);
  leave();
  leave_hot_to_background();
  return moved;
}

// A thread that polls without success has time for lanes whose own CQs are not polled. If it did
// not serve them, the background thread would, and compete with it for a core.
void Poller::look_for_others() {
  if (device_->config().progress == ProgressMode::kThread) return;
  const std::shared_ptr<Poller> other = device_->poller_to_help(*this);
  if (other == nullptr || !lock_.try_enter()) return;
  if (helped_.size() < kHelpedMax) {
    other->take();
    helped_.push_back(other);
  }
  leave();
}

bool Poller::help_others() {
  bool moved = false;
  std::erase_if(helped_, [&](const std::weak_ptr<Poller>& weak) {
    const std::shared_ptr<Poller> other = weak.lock();
    if (other == nullptr || !other->kept_by_callers()) return true;
    moved |= other->help();
    return false;
  });
  return moved;
}

bool Poller::help() {
  drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return run_once(false).value_or(false);
}

bool Poller::was_active() {
  const std::uint64_t served = served_.load(std::memory_order_relaxed);
  return served != std::exchange(served_seen_, served) && !kept_by_callers();
}

void Poller::add_stalled(std::vector<Stalled>& out) {
  for (const std::uint64_t token : tokens()) {
    Found found = find(token);
    if (found.lane == nullptr) continue;
    const Instant since = found.lane->stalled_since();
    if (!since.is_never()) out.push_back({since, std::move(found.owner), found.lane});
  }
}

void Poller::check_peers(Instant now) {
  for (const std::uint64_t token : tokens()) {
    const Found found = find(token);
    if (found.lane != nullptr) found.lane->check_peer(now);
  }
}

}  // namespace weft::verbs
