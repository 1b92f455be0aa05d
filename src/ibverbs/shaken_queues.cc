// The queues themselves.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>

#include "ibverbs/errors.h"
#include "ibverbs/shake_log.h"
#include "ibverbs/shaken.h"
#include "ibverbs/shaken_overflow.h"
#include "ibverbs/shaken_state.h"
#include "os/clock.h"
#include "os/lock.h"
#include "shake/held_completions.h"
#include "shake/ledger.h"
#include "shake/undefined.h"

namespace weft::ibverbs {
namespace {

using shake::Effect;

unsigned long long wide(std::uint64_t number) { return number; }

std::uint64_t now_ns() { return static_cast<std::uint64_t>(os::monotonic_ns()); }

// Holds completions back, which the device might not have made yet. Not those that an event told
// of: while the queue is armed nothing is held.
//
// Here and below, in a child of fork() each call goes past it: a thread of the parent perhaps has
// the mutex.
class ShakenCq final : public CompletionQueue, public HoldsCompletions {
 public:
  ShakenCq(std::shared_ptr<CompletionQueue> inner, std::uint32_t depth)
      : inner_(std::move(inner)),
        asked_(depth),
        stream_(shaker().next_stream()),
        dice_(shaker().plan().seed, stream_),
        held_(shaker().plan(), stream_) {}

  std::size_t poll(std::span<WorkCompletion> out) override {
    if (shaking == nullptr) return inner_->poll(out);
    std::size_t taken = 0;
    bool overflows = false;
    {
      const os::MutexLock lock(mutex_);
      drain(may_hold_);
      // An adapter has no more room than was asked for, perhaps.
      const std::size_t all = held_.size() + inner_->queued();
      overflows = shakes(Effect::kSizes) && all > asked_ && !overflowed_.exchange(true);
      taken = held_.take(out, now_ns());
      // So long forget() waits, and the number is that of no other queue pair.
      for (WorkCompletion& one : out.first(taken)) {
        if (const auto qp = shaker().find(one.qp_num)) qp->polled(one);
      }
    }
    if (overflows && logs_shaking)
      shake_log("cq %llu: it has overflowed: more than was asked for\n", wide(place_));
    if (overflows) shake_overflow(*static_cast<Cq*>(inner_->context()));
    return taken;
  }

  // A completion of the meantime came before the call: it makes no event, the next poll gets it.
  Status arm(Arm what) override {
    if (shaking == nullptr || inner_->channel() == nullptr) return inner_->arm(what);
    const os::MutexLock lock(mutex_);
    drain(false);
    ++arms_;
    if (shakes(Effect::kArm) && dice_.percent(50)) {
      const std::uint64_t wait = dice_.below(3'000'000);
      if (logs_shaking)
        shake_log("cq %llu: the call %llu that arms it waits up to %llu us for a completion\n",
                  wide(place_), wide(arms_), wide(wait / 1000));
      const std::uint64_t end = now_ns() + wait;
      while (held_.size() == 0 && now_ns() < end) drain(false);
    }
    held_.show_all();
    may_hold_ = false;
    return inner_->arm(what);
  }

  void show_all() override {
    const os::MutexLock lock(mutex_);
    drain(false);
    held_.show_all();
  }
  void event_taken() {
    const os::MutexLock lock(mutex_);
    drain(false);
    held_.show_all();
    may_hold_ = true;
  }
  void forget(std::uint32_t qp_num) override {
    const os::MutexLock lock(mutex_);
    held_.forget(qp_num);
  }

  Status resize(std::uint32_t depth) override {
    if (shaking == nullptr) return inner_->resize(depth);
    const os::MutexLock lock(mutex_);
    if (depth < held_.size()) return tl::unexpected(Error::kInvalidArgument);
    if (Status done = inner_->resize(depth); !done) return done;
    asked_ = depth;
    return {};
  }
  void ack_events(std::uint32_t count) override { inner_->ack_events(count); }
  void wait_for_acks() override { inner_->wait_for_acks(); }
  [[nodiscard]] std::uint32_t depth() const override {
    return shakes(Effect::kSizes) ? asked_.load() : inner_->depth();
  }
  [[nodiscard]] std::size_t queued() const override {
    const os::MutexLock lock(mutex_);
    return held_.size() + inner_->queued();
  }
  [[nodiscard]] std::shared_ptr<CompletionChannel> channel() const override {
    return inner_->channel();
  }
  [[nodiscard]] void* context() const override { return inner_->context(); }
  [[nodiscard]] std::size_t users() const override { return inner_->users(); }
  [[nodiscard]] bool overflowed() const override { return overflowed_ || inner_->overflowed(); }

 private:
  // Takes what the engine has, at most as many as the program asked for room.
  void drain(bool may_wait) WEFT_REQUIRES(mutex_) {
    std::array<WorkCompletion, 16> batch;
    for (std::size_t got = batch.size(); got == batch.size() && held_.size() < asked_;) {
      got = inner_->poll(
          std::span(batch).first(std::min<std::size_t>(batch.size(), asked_ - held_.size())));
      for (const WorkCompletion& one : std::span(batch).first(got)) {
        // Not those of a queue pair that is being destroyed.
        const auto qp = shaker().find(one.qp_num);
        if (qp == nullptr) continue;
        ++came_;
        const std::uint64_t wait = held_.add(one, now_ns(), may_wait, qp->place());
        if (wait != 0 && logs_shaking)
          shake_log("cq %llu: completion %llu, a %s of qp %llu, is shown %llu us late\n",
                    wide(place_), wide(came_), shake::is_receive(one) ? "receive" : "request",
                    wide(qp->place()), wide(wait / 1000));
      }
    }
  }

  const std::shared_ptr<CompletionQueue> inner_;
  std::atomic<bool> overflowed_{false};
  std::atomic<std::uint32_t> asked_;
  const std::uint64_t stream_;
  const std::uint64_t place_ = shaker().next_cq();
  mutable os::Mutex mutex_;
  std::uint64_t arms_ WEFT_GUARDED_BY(mutex_) = 0, came_ WEFT_GUARDED_BY(mutex_) = 0;
  shake::Dice dice_ WEFT_GUARDED_BY(mutex_);
  shake::Held held_ WEFT_GUARDED_BY(mutex_);
  bool may_hold_ WEFT_GUARDED_BY(mutex_) = true;
};

class ShakenSrq final : public SharedReceiveQueue {
 public:
  ShakenSrq(std::shared_ptr<SharedReceiveQueue> inner, std::uint32_t depth)
      : receives(std::make_shared<PostedReceives>(depth, [inner] { return inner->posted(); })),
        inner_(std::move(inner)) {
    shaker().add(receives);
  }

  const std::shared_ptr<PostedReceives> receives;

  Posted post_recv(std::span<const RecvWr> wrs) override {
    if (shaking == nullptr) return inner_->post_recv(wrs);
    return receives->post(wrs, [this](auto some) { return inner_->post_recv(some); });
  }
  [[nodiscard]] std::uint32_t posted() const override { return inner_->posted(); }
  Status resize(std::uint32_t max_wr) override {
    Status done = inner_->resize(max_wr);
    if (done) receives->resize(max_wr);
    return done;
  }
  Status set_limit(std::uint32_t limit) override { return inner_->set_limit(limit); }
  [[nodiscard]] std::uint32_t max_wr() const override {
    return shakes(Effect::kSizes) ? receives->depth() : inner_->max_wr();
  }
  [[nodiscard]] std::uint32_t max_sge() const override { return inner_->max_sge(); }
  [[nodiscard]] std::uint32_t limit() const override { return inner_->limit(); }
  [[nodiscard]] std::uint32_t number() const override { return inner_->number(); }
  [[nodiscard]] void* context() const override { return inner_->context(); }
  [[nodiscard]] std::size_t users() const override { return inner_->users(); }

 private:
  const std::shared_ptr<SharedReceiveQueue> inner_;
};

class ShakenQp final : public QueuePair,
                       public CountsCompletions,
                       public std::enable_shared_from_this<ShakenQp> {
 public:
  ShakenQp(std::shared_ptr<QueuePair> inner, const ibv_qp_cap& asked,
           std::shared_ptr<PostedReceives> receives)
      : inner_(std::move(inner)),
        rung_(inner_),
        type_(inner_->type()),
        asked_(asked),
        receives_(std::move(receives)),
        stream_(shaker().next_stream()) {}

  Posted post_send(std::span<const SendWr> wrs) override {
    if (shaking == nullptr) return inner_->post_send(wrs);
    Posted posted;
    for (const SendWr& wr : wrs) {
      const Status queued = queue_send(wr);
      if (!queued) posted.error = queued.error();
      if (!queued) break;
      ++posted.count;
    }
    if (posted.count != 0) ring();
    return posted;
  }
  Posted post_recv(std::span<const RecvWr> wrs) override {
    if (shaking == nullptr) return inner_->post_recv(wrs);
    return receives_->post(wrs, [this](auto some) { return inner_->post_recv(some); });
  }

  // An adapter has the slot of a request until a completion at or after it is polled.
  Status queue_send(const SendWr& wr) override {
    if (shaking == nullptr) return inner_->queue_send(wr);
    const os::MutexLock lock(mutex_);
    const bool is_inline = has(wr.flags, SendFlags::kInline);
    // The SGEs of these are not looked at: the list is perhaps gone.
    const bool of_keys = wr.op == SendOp::kBindWindow || wr.op == SendOp::kLocalInvalidate;
    const std::vector<Sge> sges = of_keys ? std::vector<Sge>() : memory_of(wr.sges);
    ++requests_;
    if (shakes(Effect::kSizes)) {
      if (sends_.size() >= asked_.max_send_wr) return refuse(Error::kNoSpace);
      std::uint64_t bytes = 0;
      for (const Sge& sge : sges) bytes += sge.length;
      const bool fits =
          is_inline ? bytes <= asked_.max_inline_data : wr.sges.size() <= asked_.max_send_sge;
      if (!fits && !of_keys) return refuse(Error::kInvalidArgument);
    }
    shake::Ledger::Entry entry{wr.wr_id, signals_all || has(wr.flags, SendFlags::kSignaled), {}};
    if (!is_inline) entry.sges = sges;
    sends_.add(std::move(entry));
    Status queued = inner_->queue_send(wr);
    if (!queued) sends_.drop_last();
    // The program may destroy the objects that it names next.
    if (of_keys) urgent_ = true;
    return queued;
  }

  // Until then the engine reads no source.
  void ring() override {
    if (shaking == nullptr) return inner_->ring();
    std::chrono::microseconds wait{0};
    {
      const os::MutexLock lock(mutex_);
      if (!urgent_ && shakes(Effect::kLate)) {
        if (rings_later_) return;
        shake::Dice dice = dice_of(shake::Decision::kRung, 0, requests_);
        if (dice.percent(70)) wait = std::chrono::microseconds(dice.below(2000));
      }
      urgent_ = false;
      rings_later_ = wait.count() != 0;
      if (rings_later_ && logs_shaking)
        shake_log("qp %llu: request %llu is taken %lld us late\n", wide(place_), wide(requests_),
                  static_cast<long long>(wait.count()));
    }
    if (scrambles_errno) scramble_errno();
    if (wait.count() != 0) return shaker().ring_later(weak_from_this(), wait);
    inner_->ring();
  }
  void ring_now() override {
    {
      const os::MutexLock lock(mutex_);
      rings_later_ = false;
    }
    const os::MutexLock lock(ringing_);
    if (rung_ != nullptr) rung_->ring();
  }
  // The program destroys it. Other threads may hold it for a moment yet, but not the engine's.
  void close() {
    receives_->emptied();
    {
      const os::MutexLock lock(ringing_);
      rung_.reset();
    }
    inner_.reset();
  }

  void polled(WorkCompletion& one) override {
    const bool receive = shake::is_receive(one);
    if (receive) {
      received(one);
    } else {
      const os::MutexLock lock(mutex_);
      sends_.sent(one.wr_id, one.status == WcStatus::kSuccess);
    }
    if (!shakes(Effect::kUndefined)) return;
    const os::MutexLock lock(mutex_);
    std::uint64_t& polled = receive ? receives_polled_ : requests_polled_;
    shake::Dice dice = dice_of(shake::Decision::kUndefined, receive ? 1 : 0, ++polled);
    shake::scramble(one, type_ == QpType::kUd, dice);
  }
  bool may_use(const Sge& octets) override {
    const os::MutexLock lock(mutex_);
    return sends_.uses(octets);
  }
  [[nodiscard]] std::uint64_t place() const override { return place_; }
  void emptied() {
    receives_->emptied();
    const os::MutexLock lock(mutex_);
    sends_.clear();
  }

  bool signals_all = false;

  [[nodiscard]] QpCaps caps() const override {
    if (!shakes(Effect::kSizes)) return inner_->caps();
    return {asked_.max_send_wr, asked_.max_recv_wr, asked_.max_send_sge, asked_.max_recv_sge,
            asked_.max_inline_data};
  }
  [[nodiscard]] QpAttributes query() const override {
    QpAttributes out = inner_->query();
    if (!shakes(Effect::kSizes)) return out;
    out.caps = caps();
    const os::MutexLock lock(mutex_);
    out.sq_taken = static_cast<std::uint32_t>(sends_.size());
    return out;
  }
  [[nodiscard]] QpType type() const override { return type_; }
  [[nodiscard]] std::uint32_t number() const override { return inner_->number(); }
  [[nodiscard]] QpState state() const override { return inner_->state(); }
  [[nodiscard]] void* context() const override { return inner_->context(); }
  [[nodiscard]] std::shared_ptr<Connection> connection() const override {
    return inner_->connection();
  }
  Status modify(QpState to) override { return inner_->modify(to); }
  void set_remote_access(Access access) override { inner_->set_remote_access(access); }
  Status set_datagram_key(std::uint32_t key) override { return inner_->set_datagram_key(key); }
  Status wire(const WiringToReceive& attributes) override { return inner_->wire(attributes); }
  Status start_sending(const WiringToSend& attributes) override {
    return inner_->start_sending(attributes);
  }

 private:
  // An adapter has no more room than was asked for.
  Status refuse(Error why) WEFT_REQUIRES(mutex_) {
    if (logs_shaking)
      shake_log("qp %llu: request %llu is refused: more than was asked for\n", wide(place_),
                wide(requests_));
    return tl::unexpected(why);
  }
  [[nodiscard]] shake::Dice dice_of(shake::Decision about, std::uint64_t queue,
                                    std::uint64_t number) const {
    return {shaker().plan().seed, stream_, about, queue, number};
  }
  // The cache line in which the message ends: an adapter may write it whole.
  void received(const WorkCompletion& one) {
    const auto entry = receives_->received(one.wr_id);
    const bool placed = one.status == WcStatus::kSuccess && one.op == WcOp::kRecv;
    if (!entry || !placed || !shakes(Effect::kUndefined)) return;
    std::uint64_t number = 0;
    {
      const os::MutexLock lock(mutex_);
      number = ++received_;
      if (!dice_of(shake::Decision::kTail, 0, number).percent(50)) return;
    }
    const auto tail = shake::tail(entry->sges, one.byte_len);
    if (tail && shaker().fill_tail(*tail) && logs_shaking)
      shake_log("qp %llu: receive %llu has other octets behind its message\n", wide(place_),
                wide(number));
  }

  // Both null after close(). The program calls nothing then, and others use `rung_`.
  std::shared_ptr<QueuePair> inner_;
  os::Mutex ringing_;
  std::shared_ptr<QueuePair> rung_ WEFT_GUARDED_BY(ringing_);
  const QpType type_;
  const std::uint64_t place_ = shaker().next_qp();
  const ibv_qp_cap asked_;
  const std::shared_ptr<PostedReceives> receives_;
  const std::uint64_t stream_;
  mutable os::Mutex mutex_;
  shake::Ledger sends_ WEFT_GUARDED_BY(mutex_);
  std::uint64_t requests_ WEFT_GUARDED_BY(mutex_) = 0, received_ WEFT_GUARDED_BY(mutex_) = 0;
  std::uint64_t requests_polled_ WEFT_GUARDED_BY(mutex_) = 0;
  std::uint64_t receives_polled_ WEFT_GUARDED_BY(mutex_) = 0;
  bool urgent_ WEFT_GUARDED_BY(mutex_) = false;
  bool rings_later_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace

void shake(Cq& cq, std::uint32_t depth) {
  auto shaken = std::make_shared<ShakenCq>(cq.engine, depth);
  shaker().add(std::shared_ptr<HoldsCompletions>(shaken));
  cq.engine = std::move(shaken);
}

void shake(Srq& srq, std::uint32_t depth) {
  srq.engine = std::make_shared<ShakenSrq>(srq.engine, depth);
}

void shake(Qp& qp, const ibv_qp_cap& asked, ibv_qp_cap& granted) {
  std::shared_ptr<PostedReceives> receives;
  if (qp.srq) {
    // One that was made before a fork() is not shaken; nor is this one then.
    receives = static_cast<ShakenSrq&>(*qp.srq->engine).receives;
  } else {
    receives = std::make_shared<PostedReceives>(asked.max_recv_wr);
    shaker().add(receives);
  }
  auto shaken = std::make_shared<ShakenQp>(qp.engine, asked, std::move(receives));
  shaken->signals_all = qp.signal_all;
  shaker().add(qp.engine->number(), shaken);
  qp.posts_to = std::move(shaken);
  if (shakes(Effect::kSizes)) granted = asked;
}

// In this order: a completion queue takes none of its completions any more, and has none.
void shake_destroyed(Qp& qp) {
  shaker().remove(qp.pub.qp_base.qp_num);
  for (const auto& cq : shaker().queues()) cq->forget(qp.pub.qp_base.qp_num);
  if (qp.posts_to != qp.engine) static_cast<ShakenQp&>(*qp.posts_to).close();
}

void shake_emptied(Qp& qp) {
  for (const auto& cq : shaker().queues()) cq->forget(qp.pub.qp_base.qp_num);
  if (qp.posts_to != qp.engine) static_cast<ShakenQp&>(*qp.posts_to).emptied();
}

void shake_event(Cq& cq) {
  if (cq.engine != cq.delivers_to) static_cast<ShakenCq&>(*cq.engine).event_taken();
}

}  // namespace weft::ibverbs
