// Progress: moving bytes between the socket and the stream, by whoever is at hand.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "io/clock.h"
#include "io/socket.h"
#include "verbs/channel.h"
#include "verbs/connection.h"
#include "verbs/cq.h"
#include "verbs/progress.h"
#include "verbs/qp_exclusive.h"

namespace weft::verbs {

namespace {

// The kernel takes gather lists as they are.
static_assert(sizeof(proto::Slice) == sizeof(iovec) &&
              offsetof(proto::Slice, data) == offsetof(iovec, iov_base) &&
              offsetof(proto::Slice, size) == offsetof(iovec, iov_len));

constexpr std::size_t kScratchBytes = 256U << 10U;
static_assert(kScratchBytes >= proto::kScratchBytesMin);

// So many requests in one flush are a stream, see may_defer().
constexpr std::uint32_t kStreamOfPosts = 4;

// Reads of one turn: a fast peer must not keep the thread from others for long.
constexpr int kReadsPerTurn = 16;

// Where small FPDUs are staged: one buffer a thread, so that it stays in the cache.
std::span<std::uint8_t> scratch() {
  thread_local const std::unique_ptr<std::uint8_t[]> buffer(new std::uint8_t[kScratchBytes]);
  return {buffer.get(), kScratchBytes};
}

// The C library's calls are points where a thread may be cancelled, which costs two atomic
// operations each; these never block. ThreadSanitizer knows the library's calls only.
#if defined(__SANITIZE_THREAD__) || !defined(SYS_recvfrom) || !defined(SYS_sendto)
ssize_t receive_now(int fd, void* to, std::size_t size) { return recv(fd, to, size, MSG_DONTWAIT); }
ssize_t send_now(int fd, const void* from, std::size_t size) {
  return send(fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}
#else
ssize_t receive_now(int fd, void* to, std::size_t size) {
  return syscall(SYS_recvfrom, fd, to, size, MSG_DONTWAIT, nullptr, nullptr);
}
ssize_t send_now(int fd, const void* from, std::size_t size) {
  return syscall(SYS_sendto, fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
}
#endif

ssize_t receive_slices(int fd, proto::RxPlan& plan) {
  if (plan.count == 1) return receive_now(fd, plan.slices[0].data, plan.slices[0].size);
  msghdr message{};
  message.msg_iov = reinterpret_cast<iovec*>(plan.slices);
  message.msg_iovlen = plan.count;
  return recvmsg(fd, &message, MSG_DONTWAIT);
}

ssize_t send_slices(int fd, const proto::TxBatch& batch) {
  const proto::Slice* first = batch.slices + batch.slice_next;
  const std::size_t count = batch.slice_count - batch.slice_next;
  if (count == 1) return send_now(fd, first->data, first->size);
  msghdr message{};
  message.msg_iov = reinterpret_cast<iovec*>(const_cast<proto::Slice*>(first));
  message.msg_iovlen = count;
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

// --- who does it ---

bool QueuePairImpl::progress() {
  driven_.store(driven_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  // Somebody is at it, but may be past its reading: who wants to sleep next must look again.
  if (!progress_lock_.try_lock()) return true;
  const Turn turn = run(false);
  if (turn != Turn::kIdle) {
    epilogue();
    settle();
    return turn == Turn::kMoved;
  }
  // Most polls find nothing, and then nothing has changed.
  progress_lock_.unlock_in_order();
  if (kick_.load(std::memory_order_seq_cst)) kick();
  return false;
}

void QueuePairImpl::on_io(std::uint32_t events) {
  const std::shared_ptr<QueuePairImpl> self = weak_from_this().lock();
  if (self == nullptr) return;
  constexpr std::uint32_t kEnd = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  progress_lock_.lock();
  if (!live()) {
    progress_lock_.unlock();
    return;
  }
  const bool again = run((events & kEnd) != 0) == Turn::kMoved;
  epilogue();
  // With edge-triggered readiness, what was left for the sake of others must be asked for anew.
  if (again && live() && !adopted()) {
    (void)device_.engine().modify(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  }
  const std::shared_ptr<CompletionQueueImpl> send_cq = send_cq_;
  const std::shared_ptr<CompletionQueueImpl> recv_cq = recv_cq_;
  settle();
  // Callers who are polling right now drive it better than a thread that has to be woken.
  if (send_cq != nullptr && recv_cq != nullptr) hand_over(*send_cq, *recv_cq);
}

void QueuePairImpl::hand_over(CompletionQueueImpl& send_cq, CompletionQueueImpl& recv_cq) {
  bool watched = false;
  for (CompletionQueueImpl* cq : {&send_cq, &recv_cq}) {
    if (!cq->polled_lately()) continue;
    cq->note_polls();
    cq->offer(*this, false);
    watched = true;
  }
  if (watched) return;
  const std::shared_ptr<CompletionQueueImpl> poller = device_.poller();
  if (poller == nullptr || !poller->polled_lately()) return;
  poller->note_polls();
  // Told first: once in that CQ's list, this has to be found by retire().
  const std::lock_guard lock(foster_lock_);
  if (over_) return;
  if (const auto former = foster_.lock(); former != nullptr && former != poller) return;
  foster_ = poller;
  poller->offer(*this, true);
}

void QueuePairImpl::on_timer(io::TimerId) {
  const std::shared_ptr<QueuePairImpl> self = weak_from_this().lock();
  if (self == nullptr) return;
  exclusively([&] {
    timer_ = 0;
    timer_at_ = Instant::never();
    if (!stream_ || !live()) return;
    (void)run(false);  // what has come by now came in time
    if (!stream_->finished()) stream_->expired(io::now());
    if (live() && stream_->tx_pending()) (void)transmit();
  });
}

// Gives the lock up. A kick that came meanwhile means: there is something new to transmit.
void QueuePairImpl::settle() {
  std::shared_ptr<QueuePairImpl> last = std::move(done_with_self_);
  progress_lock_.unlock_in_order();
  while (kick_.load(std::memory_order_seq_cst)) {
    if (!progress_lock_.try_lock_in_order()) break;
    if (kick_.exchange(false, std::memory_order_seq_cst)) {
      if (live()) transmit();
      if (state() == QpState::kError && stream_) stream_->flush_posted();
      epilogue();
    }
    if (done_with_self_ != nullptr) last = std::move(done_with_self_);
    progress_lock_.unlock_in_order();
  }
  if (news_due_.load(std::memory_order_acquire)) tell_connection();
  // The engine may be about to call us; it must not find us gone.
  if (last != nullptr) device_.engine().wait_for(this);
}

void QueuePairImpl::tell_connection() {
  const std::shared_ptr<QueuePairImpl> self = weak_from_this().lock();
  std::unique_lock lock(news_lock_);
  if (telling_) return;  // whoever tells will find the rest
  telling_ = true;
  while (news_due_.exchange(false, std::memory_order_acq_rel)) {
    News news = std::exchange(news_, {});
    lock.unlock();
    if (news.connection != nullptr) {
      if (news.first_fpdu) news.connection->on_first_fpdu();
      if (news.down) news.connection->on_stream_down(news.how, news.code, news.by_peer);
    }
    news = {};  // perhaps the last one to hold the connection
    lock.lock();
  }
  telling_ = false;
}

// --- moving bytes ---

QueuePairImpl::Turn QueuePairImpl::run(bool until_end) {
  if (!live()) return Turn::kIdle;
  bool moved = receive(until_end);
  bool tried = false;
  if (live() && (stream_->tx_pending() || tx_blocked_)) {
    tried = true;
    moved |= transmit();
  }
  if (waits_for_acks()) {
    tried = true;
    note_acknowledged();
  }
  wake_who_waits_for_writes();
  if (moved) return Turn::kMoved;
  return tried ? Turn::kTried : Turn::kIdle;
}

// See CompletionQueueImpl::wake_idle(). A Write that came while requests were outstanding wakes
// when the last of them is gone, which may be without a completion.
void QueuePairImpl::wake_who_waits_for_writes() {
  const std::uint64_t writes =
      stream_->counters().rx_messages[static_cast<std::size_t>(Opcode::kWrite)].get();
  if (writes == writes_seen_) return;
  if (send_cq_ == nullptr || send_cq_ == recv_cq_ || !send_cq_->armed() || sq_.size() != 0) return;
  writes_seen_ = writes;
  send_cq_->wake_idle();
}

bool QueuePairImpl::receive(bool until_end) {
  bool moved = false;
  for (int turn = 0; turn < kReadsPerTurn || until_end; ++turn) {
    proto::RxPlan plan;
    stream_->want(plan, scratch());
    const ssize_t n = receive_slices(socket_.get(), plan);
    if (n > 0) {
      rx_calls_.add(1);
      const auto bytes = static_cast<std::size_t>(n);
      if (trace_ != nullptr) trace_->rx({plan.slices, plan.count}, bytes);
      stream_->arrived(bytes);
      moved = true;
      if (stream_->finished()) return moved;
      if (bytes < plan.bytes && !until_end) return moved;
      continue;
    }
    const int error = errno;
    stream_->arrived(0);
    if (n == 0) {
      if (trace_ != nullptr) trace_->rx_fin();
      stream_->peer_closed();
      return true;
    }
    if (error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK) {
      rx_empty_.add(1);
      return moved;
    }
    transport_error(error);
    return true;
  }
  return moved;
}

bool QueuePairImpl::transmit() {
  // A full barrier: a request whose doorbell this takes is seen by gather() below.
  (void)deferred_.exchange(false, std::memory_order_seq_cst);
  unflushed_bytes_.store(0, std::memory_order_relaxed);
  tx_blocked_ = false;
  bool moved = false;
  while (live()) {
    proto::TxBatch* batch = stream_->gather();
    if (batch == nullptr) break;
    if (!send_batch(*batch)) break;
    moved = true;
  }
  const std::uint32_t tail = sq_.tail();
  streaming_.store(tail - flushed_tail_ >= kStreamOfPosts, std::memory_order_relaxed);
  flushed_tail_ = tail;
  last_flush_.store(cpu_ticks(), std::memory_order_relaxed);
  driven_at_flush_.store(driven_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (send_cq_ != nullptr) {
    const std::uint64_t polls = send_cq_->polls();
    const bool by_callers = device_.config().progress != ProgressMode::kThread;
    polled_between_flushes_.store(
        by_callers && polls != polls_at_flush_.load(std::memory_order_relaxed),
        std::memory_order_relaxed);
    polls_at_flush_.store(polls, std::memory_order_relaxed);
  }
  if (live() && stream_->take_fin()) {
    if (trace_ != nullptr) trace_->tx_fin();
    shutdown(socket_.get(), SHUT_WR);
  }
  return moved;
}

// False: TCP takes no more now.
bool QueuePairImpl::send_batch(proto::TxBatch& batch) {
  while (true) {
    const std::size_t left = batch.bytes - batch.sent;
    const ssize_t n = send_slices(socket_.get(), batch);
    if (n >= 0) {
      tx_calls_.add(1);
      const auto bytes = static_cast<std::size_t>(n);
      if (trace_ != nullptr) {
        trace_->tx({batch.slices + batch.slice_next, batch.slice_count - batch.slice_next}, bytes);
      }
      stream_->sent(bytes);
      stream_->released(bytes);  // the kernel has copied them
      if (bytes == left) return true;
      tx_blocked_ = true;
      return false;
    }
    const int error = errno;
    if (error == EINTR) continue;
    stream_->sent(0);
    if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM) {
      tx_blocked_ = true;
      tx_blocked_calls_.add(1);
      return false;
    }
    // After a reset there may still be a Terminate to read, which says more.
    if (error == EPIPE || error == ECONNRESET) (void)receive(true);
    if (live() && !stream_->finished()) transport_error(error);
    return false;
  }
}

void QueuePairImpl::transport_error(int error) {
  if (error == EFAULT) {
    stream_->memory_fault();
  } else {
    stream_->transport_lost(error == ETIMEDOUT);
  }
}

bool QueuePairImpl::waits_for_acks() const {
  return device_.config().completions == CompletionMode::kAcked && live() && sq_.size() != 0;
}

void QueuePairImpl::note_acknowledged() {
  const std::uint64_t sent = stream_->tx_offset();
  const std::uint64_t unacknowledged = io::unacknowledged(socket_.get());
  stream_->acked(sent - std::min(sent, unacknowledged));
  if (sq_.size() == 0 || watched_.exchange(true, std::memory_order_acq_rel)) return;
  device_.progress().watch(shared_from_this());
}

// What every stretch of progress ends with.
void QueuePairImpl::epilogue() {
  if (!stream_) return;
  if (overflow_.load(std::memory_order_relaxed) && live() &&
      stream_->state() == proto::StreamState::kRts) {
    stream_->fail(proto::Violation::kLocalFault);
    transmit();
  }
  if (live() && stream_->state() != proto::StreamState::kRts) {
    if (stream_->tx_pending() || !stream_->finished()) transmit();  // a Terminate, the FIN
    if (stream_->finished()) close_socket();
  }
  if (live() && stream_->deadline() != timer_at_) {
    device_.engine().forget_timer(timer_);
    timer_at_ = stream_->deadline();
    timer_ = timer_at_.is_never() ? 0 : device_.engine().schedule(timer_at_, this);
  }
  if (drain_event_due_ && stream_->send_drained()) {
    drain_event_due_ = false;
    raise(AsyncEventType::kSqDrained);
  }
}

void QueuePairImpl::close_socket() {
  if (!live()) return;
  live_.store(false, std::memory_order_release);
  adopted_.store(false, std::memory_order_release);
  device_.engine().forget(socket_.get());
  device_.engine().forget_timer(timer_);
  timer_ = 0;
  device_.note_up(-1);
  if (trace_ != nullptr && stream_->wants_reset()) trace_->reset(true);
  trace_.reset();
  if (stream_->wants_reset()) {
    io::close_with_reset(std::move(socket_));
  } else {
    socket_.reset();
  }
  connection_.reset();
  done_with_self_ = std::move(self_);
}

// --- callers and the background thread take turns ---

void QueuePairImpl::adopt() {
  {
    // Flag and epoll change together: in a race with release(), a QP that nobody counts as adopted
    // would stay disarmed.
    const std::lock_guard lock(adoption_lock_);
    if (adopted_.exchange(true, std::memory_order_acq_rel)) return;
    (void)device_.engine().modify(socket_.get(), EPOLLET);
  }
  be_watched();
}

void QueuePairImpl::be_watched() {
  if (watched_.exchange(true, std::memory_order_seq_cst)) {
    device_.progress().wake();
  } else {
    device_.progress().watch(shared_from_this());
  }
}

void QueuePairImpl::ring_collected() {
  if (deferred_.load(std::memory_order_acquire)) kick();
}

void QueuePairImpl::release() {
  {
    const std::lock_guard lock(adoption_lock_);
    if (!adopted_.exchange(false, std::memory_order_acq_rel)) return;
    if (!live()) return;
    (void)device_.engine().modify(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  }
  ring_collected();
}

QueuePairImpl::Tick QueuePairImpl::tick() {
  if (!live()) {
    watched_.store(false, std::memory_order_release);
    return Tick::kDone;
  }
  const bool acks = waits_for_acks();
  if (acks) exclusively([&] { note_acknowledged(); });
  const std::uint32_t driven = driven_.load(std::memory_order_relaxed);
  const bool busy = driven != driven_seen_;
  driven_seen_ = driven;
  ring_collected();
  if (busy) return Tick::kBusy;
  if (adopted()) {
    const std::optional<bool> asleep = under_sleeper();
    if (!asleep) return Tick::kIdle;
    if (*asleep) return acks ? Tick::kIdle : Tick::kAsleep;
    expect_no_sleeper();
  }
  release();
  if (acks && waits_for_acks()) return Tick::kIdle;
  watched_.store(false, std::memory_order_seq_cst);
  // A doorbell collected just before counted on this tick, see be_watched().
  if (deferred_.load(std::memory_order_seq_cst)) kick();
  return Tick::kDone;
}

std::array<std::shared_ptr<CompletionQueueImpl>, 2> QueuePairImpl::cqs() {
  const std::lock_guard lock(progress_lock_);
  return {send_cq_, recv_cq_};
}

void QueuePairImpl::expect_no_sleeper() {
  for (const auto& cq : cqs()) {
    if (cq != nullptr) cq->nobody_sleeps();
  }
}

// Empty: not to be known now.
std::optional<bool> QueuePairImpl::under_sleeper() {
  bool known = true;
  for (const auto& cq : cqs()) {
    if (cq == nullptr) continue;
    const std::optional<bool> watched = cq->watched_by_sleeper(*this);
    if (watched.value_or(false)) return true;
    known &= watched.has_value();
  }
  if (!known) return {};
  return false;
}

}  // namespace weft::verbs
