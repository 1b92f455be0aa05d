// Life and sending of queue pairs of datagrams.
#include "verbs/oob/datagram_qp.h"

#include <sys/socket.h>
#include <weft/limits.h>
#include <weft/wiring.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "os/calls.h"
#include "os/clock.h"
#include "os/log.h"
#include "os/memory_probe.h"
#include "roce/qp_number.h"
#include "verbs/cq.h"
#include "verbs/oob/peer_directory.h"
#include "verbs/pd.h"
#include "verbs/posting.h"
#include "verbs/qp_moves.h"
#include "verbs/srq.h"

namespace weft::verbs {

namespace {

// Room for a Target behind the rest of a WQE, on a border of 16.
constexpr std::size_t kTargetRoom = 48;
// After this many polls in a row the callers read instead of the engine's thread; until none of
// them has looked for kCallersGone.
constexpr std::uint32_t kLooksToTake = 4;
constexpr Duration kCallersGone{10'000'000};
// Datagrams without a receive wait so many times kCallersGone, if nobody polls, for a program that
// has completions to take.
constexpr std::uint32_t kWaitsForReceives = 10;
constexpr std::uint32_t kOwnKeyBit = 1U << 31U;

bool copy_at_once(void* to, const void* from, std::size_t size) {
  std::memcpy(to, from, size);
  return true;
}

bool sends(QpState state) { return state == QpState::kRts; }

}  // namespace

// --- life ---

Result<std::shared_ptr<QueuePair>> DatagramQp::create(std::shared_ptr<ProtectionDomainImpl> pd,
                                                      const QpOptions& options) {
  if (options.send_cq == nullptr || options.recv_cq == nullptr) {
    return fail(Error::kInvalidArgument);
  }
  if (!caps_legal(options)) return fail(Error::kLimitExceeded);
  DeviceImpl& device = *pd->device_impl();
  if (device.peer_directory() == nullptr) return fail(Error::kUnsupported);
  auto counted = ObjectCount::take(device, ObjectKind::kQp);
  if (!counted) return fail(counted.error());
  device.ensure_page();
  auto taken = device.peer_directory()->take_datagram_number();
  if (!taken) return fail(taken.error());
  Number number = Number::of_qp(device, taken->number);
  std::shared_ptr<DatagramQp> qp(new DatagramQp(std::move(pd), options, std::move(*counted),
                                                std::move(number), std::move(taken->socket)));
  Status made = qp->allocate(options);
  if (made) made = device.engine().add(qp->socket_.get(), EPOLLIN, qp);
  if (!made) return fail(made.error());
  std::shared_ptr<QueuePair> handle(qp.get(), [qp](QueuePair*) mutable {
    qp->retire();
    qp.reset();
  });
  qp->handle_ = handle;
  qp->send_cq_->add_user(qp);
  qp->recv_cq_->add_user(qp);
  qp->recv_cq_->add_reader(qp);
  return handle;
}

DatagramQp::DatagramQp(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options,
                       ObjectCount counted, Number number, os::Fd socket)
    : pd_(std::move(pd)),
      device_(*pd_->device_impl()),
      counted_(std::move(counted)),
      number_(std::move(number)),
      socket_(std::move(socket)),
      context_(options.context),
      signal_all_(options.signal_all),
      send_cq_(std::static_pointer_cast<CompletionQueueImpl>(options.send_cq)),
      recv_cq_(std::static_pointer_cast<CompletionQueueImpl>(options.recv_cq)),
      srq_(std::static_pointer_cast<SharedReceiveQueueImpl>(options.srq)) {
  device_.add_source(this);
  of_domain_.emplace(*pd_, srq_.get());
}

DatagramQp::~DatagramQp() {
  if (device_.usable()) {
    device_.engine().remove(socket_.get());
    device_.engine().forget_timer(watch_.timer);
    device_.engine().wait_for(this);
  }
  device_.remove_source(this);
}

Status DatagramQp::allocate(const QpOptions& o) {
  const std::size_t tail = std::max({proto::kSendTailMin, o.max_send_sge * sizeof(Sge),
                                     static_cast<std::size_t>(o.max_inline_bytes)}) +
                           kTargetRoom;
  if (!rings_.sends.allocate(std::max(o.max_send_wr, 1U), tail)) return fail(Error::kNoMemory);
  caps_.max_send_wr = o.max_send_wr == 0 ? 0 : rings_.sends.capacity();
  caps_.max_send_sge = std::max(o.max_send_sge, 1U);
  caps_.max_inline_bytes = static_cast<std::uint32_t>(
      std::min<std::size_t>(rings_.sends.tail_bytes() - kTargetRoom, limits::kInlineBytes));
  out_.slots = std::make_unique<Slots>();
  in_.slots = std::make_unique<Slots>();
  in_.has_gid = o.has_gid;
  in_.on_late_receive = o.on_late_receive;
  in_.on_refused = out_.on_refused = o.on_refused_memory;
  out_.link_of = o.link;
  if (srq_ != nullptr) return {};
  return allocate_receives(o, caps_, rings_.receives);
}

void DatagramQp::retire() {
  if (!device_.usable()) return;
  device_.engine().remove(socket_.get());
  std::shared_ptr<CompletionQueueImpl> send_cq;
  std::shared_ptr<CompletionQueueImpl> recv_cq;
  {
    const os::MutexLock rx_lock(rx_mutex_);
    const os::MutexLock tx_lock(tx_mutex_);
    state_.store(QpState::kError, std::memory_order_release);
    forget_completions();
    send_cq = std::move(send_cq_);
    recv_cq = std::move(recv_cq_);
  }
  send_cq->remove_user(this);
  recv_cq->remove_user(this);
  of_domain_.reset();
}

proto::StreamId DatagramQp::memory_user() const { return {pd_->number(), number()}; }

QpAttributes DatagramQp::query() const {
  QpAttributes a{};
  a.state = state();
  a.caps = caps_;
  a.sq_outstanding = rings_.sends.size();
  a.sq_taken = rings_.sends.taken(rings_.freed.sends);
  a.rq_outstanding = caps_.max_recv_sge == 0 ? 0 : rings_.receives.size();
  return a;
}

Status DatagramQp::set_datagram_key(std::uint32_t key) {
  key_.store(key, std::memory_order_relaxed);
  return {};
}

void DatagramQp::add_counters(Counters& sum) const {
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  sum.messages_dropped += value(counts_.dropped);
  sum.tx_bytes += value(counts_.tx_bytes);
  sum.rx_bytes += value(counts_.rx_bytes);
  sum.tx_calls += value(counts_.tx_calls);
  sum.rx_calls += value(counts_.rx_calls);
  constexpr std::size_t kSends = 3;  // Opcode::kSend
  sum.tx_messages[kSends] += value(counts_.tx_datagrams);
  sum.rx_messages[kSends] += value(counts_.rx_datagrams);
}

// --- states ---

Status DatagramQp::modify(QpState asked) {
  if (!device_.usable()) return fail(Error::kBadState);
  const os::MutexLock rx_lock(rx_mutex_);
  const os::MutexLock tx_lock(tx_mutex_);
  const QpState from = state();
  QpState to = from;
  if (!follow(datagram_moves(), to, asked)) return fail(Error::kBadState);
  state_.store(to, std::memory_order_release);
  if (to == QpState::kReset) {
    forget_completions();
    forget_requests();
  } else if (to == QpState::kError) {
    flush_sends();
    flush_receives();
  } else if (to == QpState::kSqd && from == QpState::kRts) {
    AsyncEvent event;
    event.type = AsyncEventType::kSqDrained;
    event.qp = handle_;
    event.object = static_cast<const QueuePair*>(this);
    device_.raise(std::move(event));
  } else if (to == QpState::kRts) {
    flush();  // posted in SQD
  }
  return {};
}

void DatagramQp::forget_completions() {
  if (send_cq_ != nullptr) send_cq_->forget(number());
  if (recv_cq_ != nullptr) recv_cq_->forget(number());
}

void DatagramQp::forget_requests() {
  while (rings_.sends.head() != rings_.sends.tail()) rings_.sends.retire();
  rings_.freed.sends.store(rings_.sends.head(), std::memory_order_release);
  if (srq_ != nullptr) return;
  const os::SpinGuard producers(rq_lock_);
  while (rings_.receives.head() != rings_.receives.tail()) rings_.receives.retire();
  rings_.freed.receives.store(rings_.receives.head(), std::memory_order_release);
}

void DatagramQp::cq_overflowed() { static_cast<void>(modify(QpState::kError)); }

// --- posts ---

Posted DatagramQp::post_send(std::span<const SendWr> wrs) {
  Posted posted;
  if (!device_.usable()) {  // after fork(): somebody who is not here may hold the lock
    posted.error = Error::kBadState;
    return posted;
  }
  const os::MutexLock lock(tx_mutex_);
  posted.error = may_post();
  if (posted.error != kTaken) return posted;
  posted = post_each(wrs, [this](const SendWr& wr) WEFT_NOT_ANALYZED { return enqueue(wr); });
  flush();
  return posted;
}

Status DatagramQp::queue_send(const SendWr& wr) {
  if (!device_.usable()) return fail(Error::kBadState);
  const os::MutexLock lock(tx_mutex_);
  Error error = may_post();
  if (error == kTaken) error = enqueue(wr);
  if (error != kTaken) return fail(error);
  return {};
}

void DatagramQp::ring() {
  if (!device_.usable()) return;
  const os::MutexLock lock(tx_mutex_);
  flush();
}

Error DatagramQp::may_post() const {
  return device_.usable() ? may_send(state()) : Error::kBadState;
}

Error DatagramQp::enqueue(const SendWr& wr) {
  proto::SendWqe* wqe = rings_.sends.reserve(rings_.freed.sends);
  if (wqe == nullptr || caps_.max_send_wr == 0) return Error::kNoSpace;
  const bool with_immediate = wr.op == SendOp::kImmediate;
  if ((wr.op != SendOp::kSend && !with_immediate) || wr.peer == nullptr) {
    return Error::kInvalidArgument;
  }
  wqe->wr_id = wr.wr_id;
  wqe->op = wr.op;
  wqe->flags = signal_all_ ? wr.flags | SendFlags::kSignaled : wr.flags;
  wqe->imm_data = wr.imm_data;
  if (const Error error = fill_payload(wr, caps_, roce::Datagram::kPayloadMax, *wqe);
      error != kTaken)
    return error;
  const bool own_key = (wr.peer->key & kOwnKeyBit) != 0;
  *target_of(*wqe) = {wr.peer->gid,
                      wr.peer->number,
                      own_key ? key_.load(std::memory_order_relaxed) : wr.peer->key,
                      device_.peer_directory()->choose(wr.peer->own),
                      wr.peer->traffic_class,
                      wr.peer->hop_limit};
  rings_.sends.commit();
  return kTaken;
}

DatagramQp::Target* DatagramQp::target_of(proto::SendWqe& wqe) const {
  static_assert(sizeof(Target) <= kTargetRoom);
  return reinterpret_cast<Target*>(wqe.inline_data() + rings_.sends.tail_bytes() - kTargetRoom);
}

// --- sending ---

// Sends what is queued, as far as the socket takes it.
void DatagramQp::flush() {
  while (sends(state()) && !out_.blocked && rings_.sends.head() != rings_.sends.tail()) {
    std::uint32_t count = 0;  // as wide as the queue's indices, which wrap
    Prepared last = Prepared::kReady;
    while (count < kBatch && rings_.sends.head() + count != rings_.sends.tail()) {
      last = prepare(rings_.sends.at(rings_.sends.head() + count), count);
      if (last != Prepared::kReady) break;
      ++count;
    }
    const std::size_t sent = send_batch(count);
    for (std::size_t i = 0; i < sent; ++i) complete_send(WcStatus::kSuccess);
    if (sent < count) continue;
    if (last == Prepared::kLost) complete_send(WcStatus::kSuccess);
    if (last == Prepared::kBad) send_failed();
  }
  if (state() == QpState::kSqe || state() == QpState::kError) flush_sends();
}

bool DatagramQp::resolve(const Sge& sge, std::size_t at, std::size_t size, Access need,
                         proto::StreamId user, proto::Pin& pin, std::uint8_t*& to,
                         const OnRefused& told) const {
  const MemoryFault fault =
      device_.stags().resolve(Stag{sge.lkey}, sge.addr + at, size, need, user, pin, to);
  if (fault != MemoryFault::kNone && told)
    told({fault, false, need, sge.lkey, sge.addr + at, size});
  return fault == MemoryFault::kNone && !has(pin.entry()->spec.access, proto::kByMethod);
}

// As an adapter: the send queue stops, and receiving goes on.
void DatagramQp::send_failed() {
  complete_send(WcStatus::kLocalProtection);
  state_.store(QpState::kSqe, std::memory_order_release);
}

void DatagramQp::complete_send(WcStatus status) {
  const proto::SendWqe& wqe = rings_.sends.at(rings_.sends.head());
  WorkCompletion wc;
  wc.wr_id = wqe.wr_id;
  wc.status = status;
  wc.op = WcOp::kSend;
  wc.byte_len = wqe.length;
  wc.qp_num = number();
  const bool failed = status != WcStatus::kSuccess;
  const bool told = failed || wqe.has_flag(SendFlags::kSignaled);
  rings_.sends.retire();
  if (!told || send_cq_ == nullptr) return;
  send_cq_->push(wc, failed, {&rings_.freed.sends, rings_.sends.head()});
}

void DatagramQp::flush_sends() {
  while (rings_.sends.head() != rings_.sends.tail()) complete_send(WcStatus::kFlushed);
}

// --- who reads the socket ---

void DatagramQp::watch() {
  static_cast<void>(device_.engine().modify(
      socket_.get(), (watch_.callers_read ? 0U : EPOLLIN) | (watch_.wants_room ? EPOLLOUT : 0U)));
}

// For a while. Without a timer nobody would find out that they are gone: then the engine's thread
// reads on.
void DatagramQp::leave_to_callers() {
  watch_.timer = device_.engine().schedule(os::now() + kCallersGone, weak_from_this());
  watch_.callers_read = watch_.timer != 0;
  if (!watch_.callers_read) in_.looks_in_a_row = 0;
  watch();
}

void DatagramQp::look() {
  if (!rx_mutex_.try_lock()) return;
  const os::MutexLock lock(rx_mutex_, std::adopt_lock);
  if (recv_cq_ == nullptr || !device_.usable()) return;
  counts_.looks.fetch_add(1, std::memory_order_relaxed);
  // Nobody may look at an armed CQ before it reports something.
  if (!recv_cq_->armed() && in_.looks_in_a_row < kLooksToTake &&
      ++in_.looks_in_a_row == kLooksToTake) {
    const os::MutexLock watching(watch_mutex_);
    leave_to_callers();
  }
  in_.waits = 0;
  in_.copy = copy_at_once;
  static_cast<void>(receive(WithoutReceive::kWait));
}

void DatagramQp::hand_over() {
  const os::MutexLock lock(rx_mutex_);
  if (recv_cq_ == nullptr || !device_.usable()) return;
  in_.looks_in_a_row = 0;
  const os::MutexLock watching(watch_mutex_);
  if (!std::exchange(watch_.callers_read, false)) return;
  device_.engine().forget_timer(std::exchange(watch_.timer, 0));
  watch();
}

void DatagramQp::on_timer(io::TimerId id) {
  const os::MutexLock lock(rx_mutex_);
  const os::MutexLock watching(watch_mutex_);
  if (id != watch_.timer || recv_cq_ == nullptr) return;
  watch_.timer = 0;
  const std::uint32_t looks = counts_.looks.load(std::memory_order_relaxed);
  if (std::exchange(watch_.looks_seen, looks) != looks) return leave_to_callers();
  watch_.callers_read = false;
  in_.looks_in_a_row = 0;
  watch();
}

void DatagramQp::on_io(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    const os::MutexLock lock(tx_mutex_);
    {
      const os::MutexLock watching(watch_mutex_);
      watch_.wants_room = false;
      watch();
    }
    out_.blocked = false;
    flush();
  }
  if ((events & EPOLLIN) == 0) return;
  const os::MutexLock lock(rx_mutex_);
  if (recv_cq_ == nullptr) return;
  in_.copy = os::copy_if_mapped;
  if (in_.waits == kWaitsForReceives) {
    static_cast<void>(receive(WithoutReceive::kLose));
  } else if (!receive(WithoutReceive::kWait)) {
    in_.waits = 0;
  } else {
    ++in_.waits;
    const os::MutexLock watching(watch_mutex_);
    leave_to_callers();
  }
}

}  // namespace weft::verbs
