#include "progress/shard.h"

#include <sys/epoll.h>
#include <weft/system_error.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "base/splice_if.h"
#include "os/calls.h"
#include "os/event_fd.h"
#include "os/ticks.h"
#include "progress/lane.h"

namespace weft::progress {

namespace {

constexpr int kEventsPerLook = 32;
// More than one look can report: those that are left from before have their turn, too.
constexpr std::uint32_t kLanesPerPass = 2 * kEventsPerLook;
// While lanes are attended, one pass in so many asks epoll about the others; each one where that
// costs little beside the pass.
constexpr std::uint32_t kPassesPerLook = 4;
constexpr std::uint32_t kCostlyForEachPass = 4;
constexpr std::uint32_t kAttendedForEachPass = 16;
// A holder who is kicked again and again lets others have the shard.
constexpr int kPassesPerRun = 4;
// Polls further apart than this do not count as consecutive.
constexpr std::uint64_t kSeldomUs = 50;

// In the place of a lane's lowest bit: the bell beside the socket.
constexpr std::uintptr_t kBellBit = 1;

// The kernel lets a descriptor be in 500 epolls that are in an epoll themselves, as ours are in the
// background's, and in 100 one level further down (path_limits in fs/eventpoll.c).
constexpr long kShardsPerWakeDescriptor = 32;

epoll_event event_for(std::uint32_t events, std::uintptr_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return event;
}

}  // namespace

// --- life ---

Result<std::shared_ptr<Shard>> Shard::create(std::shared_ptr<ProgressHost> host, io::Engine& home,
                                             const Shard* neighbour) {
  std::shared_ptr<Shard> shard(new Shard(std::move(host), home));
  shard->epoll_ = os::Fd(epoll_create1(EPOLL_CLOEXEC));
  if (neighbour != nullptr && neighbour->always_readable_.use_count() < kShardsPerWakeDescriptor) {
    shard->always_readable_ = neighbour->always_readable_;
  } else {
    shard->always_readable_ = std::make_shared<const os::Fd>(os::make_event(1));
  }
  if (!shard->epoll_ || !*shard->always_readable_) return fail(system_error(errno));
  // Armed by make_epoll_readable().
  epoll_event none = event_for(EPOLLONESHOT, 0);
  if (epoll_ctl(shard->epoll_.get(), EPOLL_CTL_ADD, shard->always_readable_->get(), &none) != 0) {
    return fail(system_error(errno));
  }
  return shard;
}

Shard::Shard(std::shared_ptr<ProgressHost> host, io::Engine& home)
    : host_(std::move(host)), home_(home) {}

Shard::~Shard() {
  assert(!host_->usable() || (head_ == nullptr && length_ == 0 && inbox_.load() == nullptr));
  if (host_->usable()) home_.forget(epoll_.get());
}

void Shard::make_epoll_readable() {
  epoll_event once = event_for(EPOLLIN | EPOLLONESHOT, 0);
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, always_readable_->get(), &once);
}

// --- lanes ---

Status Shard::attach(Lane& lane, std::shared_ptr<LaneOwner> owner) {
  assert(owner != nullptr && lane.transport() != nullptr && &lane.shard() == this);
  if (auto known = owner_.begin(); !known) return known;
  std::list<Kept> one;
  one.push_back({&lane, std::move(owner)});
  epoll_event event =
      event_for(lane.transport()->events(lane.blocked()), reinterpret_cast<std::uintptr_t>(&lane));
  const int fd = lane.transport()->fd();
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail(system_error(errno));
  if (lane.transport()->bell() >= 0 && !add_bell(lane)) {
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &event);
    return fail(Error::kSystem);
  }
  const os::SpinGuard lock(table_lock_);
  lane.place_in_table = one.begin();
  table_.splice(table_.end(), one);
  lane_count_.store(static_cast<std::uint32_t>(table_.size()), std::memory_order_relaxed);
  return {};
}

void Shard::detach(Lane& lane) {
  epoll_event unused{};
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane.transport()->fd(), &unused);
  if (const int bell = lane.transport()->bell(); bell >= 0) remove_bell(bell);
  const os::SpinGuard lock(table_lock_);
  assert(lane.place_in_table->lane == &lane);
  retired_.splice(retired_.end(), table_, lane.place_in_table);
  lane_count_.store(static_cast<std::uint32_t>(table_.size()), std::memory_order_relaxed);
  any_retired_.store(true, std::memory_order_release);
}

void Shard::update(const Lane& lane, int fd, std::uint32_t events) {
  epoll_event event = event_for(events, reinterpret_cast<std::uintptr_t>(&lane));
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

bool Shard::add_bell(Lane& lane) {
  epoll_event event =
      event_for(EPOLLIN | EPOLLET, reinterpret_cast<std::uintptr_t>(&lane) | kBellBit);
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, lane.transport()->bell(), &event) == 0;
}

void Shard::remove_bell(int bell) {
  epoll_event unused{};
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, bell, &unused);
}

std::vector<Shard::Kept> Shard::kept_lanes() {
  const os::SpinGuard lock(table_lock_);
  return {table_.begin(), table_.end()};
}

// A lane that is linked, or that somebody has just now, is still referred to. One that has been
// opened again has another entry in the table.
void Shard::free_retired(std::list<Kept>& out) {
  const os::SpinGuard lock(table_lock_);
  out.splice(out.end(), splice_if(retired_, [](const Kept& kept) {
               return !kept.lane->is_referred_to() || kept.lane->live();
             }));
  // Not false before: who has a lane now, which stays for that, looks at it behind its end.
  any_retired_.store(!retired_.empty(), std::memory_order_release);
}

// --- the list ---

void Shard::link(Lane& lane) noexcept {
  assert(&lane.shard() == this && tail_ != &lane);
  lane.next_in_list = nullptr;
  (tail_ == nullptr ? head_ : tail_->next_in_list) = &lane;
  tail_ = &lane;
  ++length_;
}

Lane* Shard::unlink() noexcept {
  assert(head_ != nullptr && length_ != 0);
  Lane* const lane = head_;
  head_ = lane->next_in_list;
  if (head_ == nullptr) tail_ = nullptr;
  --length_;
  return lane;
}

void Shard::link_first(Lane& lane) noexcept {
  assert(&lane.shard() == this && head_ != &lane);
  lane.next_in_list = head_;
  head_ = &lane;
  if (tail_ == nullptr) tail_ = &lane;
  ++length_;
}

void Shard::push(Lane& lane, bool by_holder) WEFT_NOT_ANALYZED {
  assert(&lane.shard() == this && lane.is_referred_to() && (!by_holder || lock_.held()));
  if (by_holder) return link(lane);
  Lane* first = inbox_.load(std::memory_order_relaxed);
  do {
    lane.next_in_list = first;
  } while (!inbox_.compare_exchange_weak(first, &lane, std::memory_order_seq_cst,
                                         std::memory_order_relaxed));
}

// The inbox has the last one first, so that the first ends up in front.
std::uint32_t Shard::take_inbox() {
  if (inbox_.load(std::memory_order_relaxed) == nullptr) return 0;
  std::uint32_t count = 0;
  Lane* lane = inbox_.exchange(nullptr, std::memory_order_seq_cst);
  while (lane != nullptr) {
    Lane* const next = lane->next_in_list;
    link_first(*lane);
    lane = next;
    ++count;
  }
  return count;
}

void Shard::kick_or_wake() {
  if (lock_.kick_if_held()) return;
  if (!owner_.is_callers() || owner_.sleepers() != 0) make_epoll_readable();
}

// --- a run ---

Ran Shard::run(Look look) WEFT_NOT_ANALYZED {
  const bool may_fail = look != Look::kAll && look != Look::kSettle;
  const bool entered = may_fail ? lock_.try_enter() : lock_.enter_or_kick();
  if (!entered) return {.busy = true};
  Ran ran;
  std::list<Kept> over;  // let go without the lock
  ran.moved = pass(look, false);
  for (int passes = 1;; ++passes) {
    if (any_retired_.load(std::memory_order_acquire)) free_retired(over);
    ran.left = length_ != 0 || more_events_ || inbox_.load(std::memory_order_relaxed) != nullptr;
    if (lock_.leave()) {
      lock_.left();
      break;
    }
    if (passes == kPassesPerRun) {
      (void)lock_.leave_at_once();
      ran.left = true;
      break;
    }
    ran.moved |= pass(look == Look::kGlance ? Look::kPoll : look, true);
  }
  return ran;
}

bool Shard::poll(Look look) {
  const std::uint64_t now = os::cpu_ticks();
  seldom_.store(now - owner_.last_look() > kSeldomUs * host_->ticks_per_us(),
                std::memory_order_relaxed);
  owner_.note_look(now);
  const Ran ran = run(look);
  if (ran.left && !owner_.is_patient()) make_epoll_readable();
  return ran.moved || ran.busy;
}

void Shard::settle() {
  const Ran ran = run(Look::kSettle);
  if (ran.left) make_epoll_readable();
}

void Shard::run_for_others() {
  const Ran ran = run(Look::kAll);
  if (ran.left && !owner_.is_patient()) make_epoll_readable();
}

bool Shard::pass(Look look, bool kicked) {
  const bool patient = look != Look::kSettle && owner_.is_patient();
  // A lane whose note is taken here is in the inbox below.
  const bool took_note = look != Look::kGlance && posts_wait_.load(std::memory_order_acquire) &&
                         posts_wait_.exchange(false, std::memory_order_seq_cst);
  more_events_ = false;
  if (look_is_due(look, kicked, patient)) harvest();
  // Those with posts go first: a peer works on what they send while others receive, and a thread
  // that has both ends of a connection receives in this pass what it sends in it.
  const std::uint32_t told = take_inbox();
  assert(told <= length_);
  const bool reaches_all = length_ - told <= kLanesPerPass;
  const bool moved = run_ready(told, look, patient);
  if (took_note && !reaches_all) (void)note_left_post();
  return moved || more_events_;
}

bool Shard::look_is_due(Look look, bool kicked, bool patient) {
  if (kicked || look == Look::kAll) return true;
  if (look == Look::kSettle || look == Look::kListed) return false;
  if (!patient || attended_.blocked.load(std::memory_order_relaxed) != 0) return true;
  const std::uint32_t attended = attended_.all.load(std::memory_order_relaxed);
  if (lanes() <= attended) return false;
  const bool each = attended == 0 || attended >= kAttendedForEachPass ||
                    attended_.costly.load(std::memory_order_relaxed) >= kCostlyForEachPass;
  if (!each && ++since_look_ < kPassesPerLook) return false;
  since_look_ = 0;
  return true;
}

// Lanes with news go before those that are left from the last pass: these had a turn just now.
void Shard::harvest() {
  Lane* const before = std::exchange(head_, nullptr);
  Lane* const before_tail = std::exchange(tail_, nullptr);
  assert((before == nullptr) == (before_tail == nullptr));
  epoll_event events[kEventsPerLook];
  const int count = os::calls::epoll_look(epoll_.get(), events, kEventsPerLook);
  for (int i = 0; i < count; ++i) {
    const auto data = static_cast<std::uintptr_t>(events[i].data.u64);
    auto* const lane = reinterpret_cast<Lane*>(data & ~kBellBit);
    if (lane == nullptr) continue;  // make_epoll_readable()
    lane->reported((data & kBellBit) != 0 ? 0 : events[i].events);
  }
  more_events_ = count == kEventsPerLook;
  if (before == nullptr) return;
  (tail_ == nullptr ? head_ : tail_->next_in_list) = before;
  tail_ = before_tail;
}

// Each once: what is linked meanwhile waits for the next pass. `told`: so many from the inbox,
// which do not count, or others would never have their turn beside them.
bool Shard::run_ready(std::uint32_t told, Look look, bool patient) {
  assert(told <= length_ && (length_ == 0) == (head_ == nullptr));
  assert((head_ == nullptr) == (tail_ == nullptr));
  bool moved = false;
  for (std::uint32_t n = told + std::min(length_ - told, kLanesPerPass); n != 0; --n) {
    Lane* const lane = unlink();
    if (look == Look::kGlance && patient && lane->only_sends()) {
      link(*lane);
      continue;
    }
    moved |= lane->run(patient).anything();
  }
  return moved;
}

// --- posts ---

bool Shard::note_left_post() {
  posts_wait_.store(true, std::memory_order_seq_cst);
  owner_.start_late_pass();
  // Behind the note: a caller who has gone to sleep since has not seen it.
  return owner_.sleepers() == 0;
}

// Not as a pass does, which may receive, too.
void Shard::send_at_exit() {
  for (const Kept& kept : kept_lanes()) kept.lane->send_at_exit();
}

// --- the device ---

void Shard::add_stalled(std::vector<Stalled>& out) {
  for (Kept& kept : kept_lanes()) {
    const Instant since = kept.lane->stalled_since();
    if (!since.is_never()) out.push_back({since, std::move(kept.owner), kept.lane});
  }
}

void Shard::check_peers(Instant now) {
  for (const Kept& kept : kept_lanes()) kept.lane->check_peer(now);
}

}  // namespace weft::progress
