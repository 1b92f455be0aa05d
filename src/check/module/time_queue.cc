#include "check/module/time_queue.h"

#include <weft/types.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "os/clock.h"

namespace weft::check {

using timeline::kNever;
using timeline::Op;

namespace {

std::uint64_t time_now() { return static_cast<std::uint64_t>(os::monotonic_ns()); }

// The posts of a call of the program.
struct Posts {
  TimeQueue* to = nullptr;
  std::uint32_t qp = 0;
  std::uint32_t first = 0;
};
thread_local constinit Posts posts;

static_assert(static_cast<int>(Op::kSend) == static_cast<int>(SendOp::kSend));
static_assert(static_cast<int>(Op::kRead) == static_cast<int>(SendOp::kRead));
static_assert(static_cast<int>(Op::kBindWindow) == static_cast<int>(SendOp::kBindWindow));
static_assert(static_cast<int>(Op::kUnknown) == Posted::kNoOp);

}  // namespace

// --- receives ---

void ReceiveTimes::posting_receive() {
  const TimeFiles::Turn turn(files_);
  if (!turn) return;
  const std::uint64_t now = time_now();
  const os::SpinGuard lock(lock_);
  if (times_.size() == kMost) times_.pop_front();
  times_.push_back(now);
}

void ReceiveTimes::not_posted_receive() {
  const TimeFiles::Turn turn(files_);
  if (!turn) return;
  const os::SpinGuard lock(lock_);
  if (!times_.empty()) times_.pop_back();
}

std::uint64_t ReceiveTimes::take() {
  const os::SpinGuard lock(lock_);
  if (times_.empty()) return kNever;
  const std::uint64_t first = times_.front();
  times_.pop_front();
  return first;
}

void ReceiveTimes::clear() {
  const os::SpinGuard lock(lock_);
  times_.clear();
}

// --- a queue pair ---

// Requests that are done are written without the lock.
template <class Work>
void TimeQueue::change(Work work) {
  const TimeFiles::Turn turn(files_);
  if (!turn) return;
  const os::SpinGuard lock(lock_);
  work(book_, turn.records());
}

// Without memory it is lost. The engine tells of it in functions that are noexcept, and in the
// midst of calls of the program.
void TimeQueue::step(const Step& what) {
  const int error = errno;
  try {
    note(what);
  } catch (const std::exception&) {
  }
  errno = error;
}

void TimeQueue::note(const Step& what) {
  if (what.what == Step::What::kConnected) {
    const std::uint32_t connection = files_.note_connection(what.fd, number());
    return change([&](auto& book, auto&) { book.connected(connection); });
  }
  const TimeFiles::Turn turn(files_);
  if (!turn) return;
  // When it was built is not wanted.
  const std::uint64_t now = what.what == Step::What::kBuilt ? 0 : time_now();
  const bool takes = what.what == Step::What::kReceiveTaken;
  ReceiveTimes& receives = shared_ != nullptr ? *shared_ : own_;
  const std::uint64_t posted = takes ? receives.take() : 0;
  const os::SpinGuard lock(lock_);
  if (takes) return book_.receive_taken(posted, now);
  book_.step(what, now, turn.records());
}

void TimeQueue::posting(const Posted& request) {
  const timeline::QueueBook::Post post{request.wr_id, static_cast<Op>(request.op),
                                       static_cast<std::uint32_t>(request.bytes), request.signaled};
  change([&](auto& book, auto&) {
    const std::uint32_t first = book.posting(post, time_now());
    if (posts.to != this) posts = {this, number(), first};
  });
}

void TimeQueue::made(std::uint32_t number, std::shared_ptr<ReceiveTimes> shared) {
  shared_ = std::move(shared);
  change([&](auto& book, auto&) {
    book = {};
    book.set_number(number);
    own_.clear();
    number_.store(number, std::memory_order_relaxed);
  });
}

void TimeQueue::destroyed() {
  change([this](auto& book, auto& out) {
    number_.store(0, std::memory_order_relaxed);
    book.emptied(out);
  });
}

void TimeQueue::emptied() {
  const TimeFiles::Turn turn(files_);
  if (!turn) return;
  own_.clear();  // those of a shared queue stay there
  const os::SpinGuard lock(lock_);
  book_.emptied(turn.records());
}

void TimeQueue::late_receive(Late what) {
  change([&](auto& book, auto&) {
    if (what == Late::kBegins) book.receive_is_late(time_now());
    if (what == Late::kLost) book.message_is_lost();
  });
}

void TimeQueue::polled(const Completed& completion) {
  const std::uint8_t status = completion.success ? 0 : completion.flushed ? 5 : 255;
  change([&](auto& book, auto& out) {
    if (number() != completion.qp_number) return;
    book.polled({completion.wr_id, status, completion.receive}, time_now(), out);
  });
}

void TimeQueue::call_begins() { posts.to = nullptr; }

void TimeQueue::last_not_posted() {
  TimeQueue* const to = posts.to;
  if (to == nullptr) return;
  to->change([&](auto& book, auto&) {
    if (to->number() == posts.qp) book.not_posted();
  });
}

void TimeQueue::call_returns(std::uint64_t now) {
  TimeQueue* const to = std::exchange(posts.to, nullptr);
  if (to == nullptr) return;
  to->change([&](auto& book, auto&) {
    if (to->number() == posts.qp) book.post_returned(posts.first, now);
  });
}

// --- all of them ---

std::shared_ptr<TimeQueue> TimeQueues::take() {
  const os::MutexLock lock(mutex_);
  if (idle_ == nullptr) idle_ = unowned_.exchange(nullptr, std::memory_order_acquire);
  if (idle_ == nullptr) {
    all_.push_back(std::make_unique<TimeQueue>(files_));
    idle_ = all_.back().get();
  }
  TimeQueue* const queue = std::exchange(idle_, idle_->next_);
  queue->next_ = nullptr;
  return {queue, [this](TimeQueue* one) { let_go(one); }};
}

// A child of fork() lets go, too, so this takes no lock.
void TimeQueues::let_go(TimeQueue* queue) noexcept {
  queue->next_ = unowned_.load(std::memory_order_relaxed);
  while (!unowned_.compare_exchange_weak(queue->next_, queue, std::memory_order_release,
                                         std::memory_order_relaxed)) {
  }
}

std::atomic<TimeQueue*>* TimeQueues::place_of(std::uint32_t number) const {
  Page* const page = pages_[number / kPage % kPage].load(std::memory_order_acquire);
  return page != nullptr ? &(*page)[number % kPage] : nullptr;
}

void TimeQueues::add(TimeQueue& queue) {
  const std::uint32_t number = queue.number();
  const os::MutexLock lock(mutex_);
  if (place_of(number) == nullptr) {
    all_pages_.push_back(std::make_unique<Page>());
    pages_[number / kPage % kPage].store(all_pages_.back().get(), std::memory_order_release);
  }
  place_of(number)->store(&queue, std::memory_order_release);
}

void TimeQueues::remove(std::uint32_t number) {
  if (auto* const place = place_of(number)) place->store(nullptr, std::memory_order_release);
}

TimeQueue* TimeQueues::find(std::uint32_t number) const {
  const auto* const place = place_of(number);
  return place != nullptr ? place->load(std::memory_order_acquire) : nullptr;
}

}  // namespace weft::check
