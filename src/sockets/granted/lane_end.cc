#include "sockets/granted/lane_end.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>

#include "sockets/granted/holders.h"
#include "sockets/granted/lane_calls.h"
#include "sockets/granted/number_states.h"
#include "sockets/granted/ring_lane.h"
#include "sockets/granted/spiller.h"
#include "sockets/real_calls.h"

namespace weft::sockets::granted {
namespace {

// The end of a connection with octets that nobody has read is a reset, as without a ring.
void reset_if_unread(const Lane& lane, int fd) {
  assert(lane.rings.attached());
  if (!readable(lane)) return;
  const linger now{1, 0};
  real().setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

// The one that holds the lock of the meeting looks at `live` behind its unlocking, and does this
// itself.
void withdraw(Lane& lane) {
  if (!lane.meeting.lock.try_lock()) return;
  rendezvous::withdraw(lane.meeting.ticket);
  lane.meeting.lock.unlock();
}

// Lets the number go from its lane in the end, also of a thread that is cancelled in between: the
// lane may be another connection's behind that.
class Release {
 public:
  Release(Number& number, Lane& lane) : number_(number), lane_(lane) {}
  ~Release() {
    lane_.fd = -1;
    Lane* mine = &lane_;
    number_.lane.compare_exchange_strong(mine, nullptr);
  }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;

 private:
  Number& number_;
  Lane& lane_;
};

// The number keeps its lane until the ring is empty: calls that send meanwhile stay behind what
// lies there.
void retire(int fd, Number& number, How how) {
  Lane* lane = number.lane.load();
  if (lane == nullptr) return;
  const Use use(*lane, Call::kVisits);
  if (number.lane.load() != lane) return;
  // Before the look at its segment: who makes one looks at this behind it (join::go_on).
  if (!lane->live.exchange(false)) {  // another thread is at it
    if (how != How::kGone) {
      // Whatever this thread does next must not overtake what lies in the ring.
      if (lane->rings.attached()) take_back_all(*lane, fd);
    } else {
      // ... for the socket that had the number before.
      number.lane.compare_exchange_strong(lane, nullptr);
    }
    return;
  }
  const Release release(number, *lane);
  lane->out.on(JoinEvent::kForbidden);
  withdraw(*lane);
  if (lane->rings.attached() && how == How::kGone) {
    lane->rings.in().store(GrantWord::kWindow, kWindowNever);
  } else if (lane->rings.attached()) {
    lane->in.on(JoinEvent::kForbidden);
    lane->rings.in().store(GrantWord::kWindow, kWindowNever);
    // Behind that: a writer that puts octets in sees the window closed, or they are seen here.
    if (how == How::kCloses) reset_if_unread(*lane, fd);
    take_back_all(*lane, fd);
    if (how != How::kCloses) lane->nodelay.give_back(fd);
  }
}

bool nothing_to_leave(const Number& number) {
  return number.calls.load(std::memory_order_relaxed) == kKernels &&
         number.lane.load(std::memory_order_relaxed) == nullptr;
}

// Notes why the number is the kernel's, and tells of a connection what it was until its end.
void note_leaving(int fd, Number& number, How how, Why why) {
  if (how == How::kGone) return states::change(fd, number, Why::kUnseen);
  const Why before = NumberState::of(number.state.load()).why;
  if (how == How::kStays) {
    if (before != why) states::tell(fd, number, why);
    return;
  }
  if (before == Why::kQuiet || before == Why::kLooking) states::tell(fd, number, before);
  states::change(fd, number, Why::kUnseen);
}

void note_holders(Number& number, How how) {
  switch (how) {
    case How::kStays: return holders::add_unknown(number);
    case How::kCloses:
    case How::kMayClose: return holders::drop(number);
    case How::kGone: return holders::forget(number);
  }
}

void leave(int fd, How how, Why why) {
  Number* number = numbers::find(fd);
  if (number == nullptr || nothing_to_leave(*number)) return;
  note_leaving(fd, *number, how, why);
  // Before the look at `lane`: who makes one looks at this behind it.
  number->calls.store(kKernels);
  if (number->lane.load() != nullptr) retire(fd, *number, how);
  if (holders::counted(*number)) note_holders(*number, how);
}

}  // namespace

void leave_to_kernel(int fd, Why why) { leave(fd, How::kStays, why); }

void leave_to_close(int fd) {
  const Number* number = numbers::find(fd);
  if (number != nullptr && number->lane.load() != nullptr && borrowing()) return;
  leave(fd, How::kCloses, Why::kUnseen);
}

void leave_to_copy(int fd) {
  if (Number* number = numbers::find(fd); number != nullptr) holders::add_unknown(*number);
  leave_to_close(fd);
}

void forget_closed(int fd) { leave(fd, How::kGone, Why::kUnseen); }

void stop() {
  if (borrowing()) return;
  numbers::stop();
  leave_range(0, ~0U, stays, Why::kRights);
  spiller::stop();
}

void retire_stray(int fd, Number& number) { retire(fd, number, How::kGone); }

void leave_range(unsigned first, unsigned last, How (*which)(int fd), Why why) {
  const auto past =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(numbers::end()), last + 1ULL);
  for (std::uint64_t i = first; i < past; ++i) {
    const auto fd = static_cast<int>(i);
    const Number* number = numbers::find(fd);
    if (number == nullptr || nothing_to_leave(*number)) continue;
    if (const How how = which(fd); how != How::kGone) leave(fd, how, why);
  }
}

}  // namespace weft::sockets::granted
